package cause

// xids are the Xid events that end a job, as NVIDIA describes them:
// https://docs.nvidia.com/deploy/xid-errors/. An event that is not here says
// nothing certain.
var xids = map[int]struct {
	code Code
	text string
}{
	13:  {IllegalAccess, "graphics engine exception: a kernel accessed memory out of range"},
	31:  {IllegalAccess, "GPU memory page fault: a kernel accessed an illegal address"},
	43:  {IllegalAccess, "GPU stopped processing: a user application hit a software error"},
	45:  {Preempted, "preemptive cleanup: the application was ended"},
	48:  {GPUHardware, "double bit ECC error"},
	61:  {GPUHardware, "internal micro-controller breakpoint"},
	62:  {GPUHardware, "internal micro-controller halt"},
	63:  {GPUHardware, "row remapping or page retirement was recorded"},
	64:  {GPUHardware, "row remapping or page retirement failed"},
	74:  {GPUHardware, "NVLink error"},
	79:  {GPUHardware, "the GPU has fallen off the bus"},
	92:  {GPUHardware, "high single bit ECC error rate"},
	94:  {GPUHardware, "contained ECC error"},
	95:  {GPUHardware, "uncontained ECC error"},
	109: {IllegalAccess, "context switch timeout"},
	119: {GPUHardware, "the GPU's system processor (GSP) timed out"},
	120: {GPUHardware, "error in the GPU's system processor (GSP)"},
	136: {GPUHardware, "link training failed"},
	140: {GPUHardware, "unrecovered ECC error"},
	143: {GPUHardware, "GPU initialisation error"},
	145: {GPUHardware, "NVLink RLW error"},
	149: {GPUHardware, "NVLink NETIR error"},
	154: {GPUHardware, "GPU recovery action changed: the GPU wants a reset"},
}

// XID says what an Xid event of the NVIDIA driver means for a job that ran on
// the GPU. The code is Unknown for an event that proves nothing.
func XID(n int) (Code, string) {
	if x, ok := xids[n]; ok {
		return x.code, x.text
	}
	return Unknown, ""
}
