package cause

// xids are the Xid events that end a job, or mean that its GPU should not be used any more, by
// NVIDIA's catalogue: https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html. The
// need is its immediate action: RESTART_APP, RESET_GPU, RESTART_BM (the node). Those of older
// GPUs are in https://docs.nvidia.com/deploy/xid-errors/. Another event says nothing certain.
var xids = map[int]struct {
	code Code
	text string
	need Need
	// survivable: the event is of the GPU's state; applications continue after it.
	survivable bool
}{
	// The job's own doing.
	13:  {code: IllegalAccess, text: "graphics engine exception: a kernel accessed memory out of range"},
	31:  {code: IllegalAccess, text: "GPU memory page fault: a kernel accessed an illegal address"},
	43:  {code: IllegalAccess, text: "GPU stopped processing: a user application hit a software error"},
	45:  {code: Preempted, text: "preemptive cleanup: the application was ended"},
	137: {code: IllegalAccess, text: "NVLink privilege error: a kernel accessed an illegal address of another GPU"},
	// Memory. A contained error is also reported as one that is not correctable (48, 171, 172).
	48:  {code: GPUHardware, text: "double bit ECC error", need: ResetUnlessContained},
	63:  {code: GPUHardware, text: "row remapping or page retirement was recorded", survivable: true},
	64:  {code: GPUHardware, text: "row remapping or page retirement failed", need: Reset, survivable: true},
	92:  {code: GPUHardware, text: "high single bit ECC error rate", survivable: true},
	94:  {code: GPUHardware, text: "contained ECC error", need: Restart},
	95:  {code: GPUHardware, text: "uncontained ECC error", need: Reset},
	140: {code: GPUHardware, text: "unrecovered ECC error", need: Reset},
	156: {code: GPUHardware, text: "a part of the GPU is to be retired", need: Reset, survivable: true},
	157: {code: GPUHardware, text: "a part of the GPU could not be retired", survivable: true},
	171: {code: GPUHardware, text: "uncorrectable error of the GPU's DRAM", need: ResetUnlessContained},
	172: {code: GPUHardware, text: "uncorrectable error of the GPU's SRAM", need: ResetUnlessContained},
	// NVLink. From the fifth generation on, 144 to 150, a code that NVML does not
	// have decides how bad it is; the driver's recovery action shows it.
	74:  {code: GPUHardware, text: "NVLink error", need: Reset},
	136: {code: GPUHardware, text: "link training failed", need: Reset},
	144: {code: GPUHardware, text: "NVLink SAW error", survivable: true},
	145: {code: GPUHardware, text: "NVLink RLW error"},
	146: {code: GPUHardware, text: "NVLink TLW error", survivable: true},
	147: {code: GPUHardware, text: "NVLink TREX error", survivable: true},
	148: {code: GPUHardware, text: "NVLink NVLPW_CTRL error", survivable: true},
	149: {code: GPUHardware, text: "NVLink NETIR error"},
	150: {code: GPUHardware, text: "NVLink MSE error", survivable: true},
	// The GPU as a whole.
	46:  {code: GPUHardware, text: "the GPU stopped processing", need: Reset},
	61:  {code: GPUHardware, text: "internal micro-controller breakpoint", need: Reset},
	62:  {code: GPUHardware, text: "internal micro-controller halt", need: Reset},
	79:  {code: GPUHardware, text: "the GPU has fallen off the bus", need: Reboot},
	109: {code: GPUHardware, text: "context switch timeout", need: Reset},
	110: {code: GPUHardware, text: "security fault", need: Reset},
	119: {code: GPUHardware, text: "the GPU's system processor (GSP) timed out", need: Reset},
	120: {code: GPUHardware, text: "error in the GPU's system processor (GSP)", need: Reset},
	143: {code: GPUHardware, text: "GPU initialisation error", need: Reset},
	151: {code: GPUHardware, text: "key rotation error", need: Reboot},
	154: {code: GPUHardware, text: "GPU recovery action changed: the GPU needs a reset", need: Reset, survivable: true},
	158: {code: GPUHardware, text: "fatal timeout of the GPU", need: Reset},
	167: {code: GPUHardware, text: "fatal timeout on the PCI bus", need: Reboot},
}

// XID is the meaning of an Xid event for a job that ran on the GPU. The code is Unknown for an
// event that proves nothing.
func XID(n int) (Code, string) {
	if x, ok := xids[n]; ok {
		return x.code, x.text
	}
	return Unknown, ""
}
