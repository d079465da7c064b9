package cause

// xids are the Xid events that end a job, as NVIDIA describes them:
// https://docs.nvidia.com/deploy/xid-errors/. An event that is not here says
// nothing certain.
var xids = map[int]struct {
	code Code
	text string
	// survivable events are of the GPU's state: applications go on after them.
	survivable bool
}{
	13:  {code: IllegalAccess, text: "graphics engine exception: a kernel accessed memory out of range"},
	31:  {code: IllegalAccess, text: "GPU memory page fault: a kernel accessed an illegal address"},
	43:  {code: IllegalAccess, text: "GPU stopped processing: a user application hit a software error"},
	45:  {code: Preempted, text: "preemptive cleanup: the application was ended"},
	48:  {code: GPUHardware, text: "double bit ECC error"},
	61:  {code: GPUHardware, text: "internal micro-controller breakpoint"},
	62:  {code: GPUHardware, text: "internal micro-controller halt"},
	63:  {code: GPUHardware, text: "row remapping or page retirement was recorded", survivable: true},
	64:  {code: GPUHardware, text: "row remapping or page retirement failed", survivable: true},
	74:  {code: GPUHardware, text: "NVLink error"},
	79:  {code: GPUHardware, text: "the GPU has fallen off the bus"},
	92:  {code: GPUHardware, text: "high single bit ECC error rate", survivable: true},
	94:  {code: GPUHardware, text: "contained ECC error"},
	95:  {code: GPUHardware, text: "uncontained ECC error"},
	109: {code: IllegalAccess, text: "context switch timeout"},
	119: {code: GPUHardware, text: "the GPU's system processor (GSP) timed out"},
	120: {code: GPUHardware, text: "error in the GPU's system processor (GSP)"},
	136: {code: GPUHardware, text: "link training failed"},
	140: {code: GPUHardware, text: "unrecovered ECC error"},
	143: {code: GPUHardware, text: "GPU initialisation error"},
	145: {code: GPUHardware, text: "NVLink RLW error"},
	149: {code: GPUHardware, text: "NVLink NETIR error"},
	154: {code: GPUHardware, text: "GPU recovery action changed: the GPU needs a reset", survivable: true},
}

// XID says what an Xid event of the NVIDIA driver means for a job that ran on
// the GPU. The code is Unknown for an event that proves nothing.
func XID(n int) (Code, string) {
	if x, ok := xids[n]; ok {
		return x.code, x.text
	}
	return Unknown, ""
}
