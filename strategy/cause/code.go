// Package cause is the catalogue of reasons why an attempt can end, and of their signs in a line
// of output, an exit or a driver event.
//
// It consists of data and pure functions: bytes go in, findings come out. Package strategy weighs
// the findings of all ranks against each other, and decides.
package cause

// A Code names a cause in verdicts, journals and JSON. Codes are stable.
type Code string

// Unknown is a valid result, and better than a wrong one. None means that nothing fatal was seen,
// for example an out-of-memory error that the job itself handled.
const (
	CUDAOOM         Code = "cuda-oom"
	GPUOccupied     Code = "gpu-occupied"
	HostOOM         Code = "host-oom"
	SharedMemory    Code = "shm"
	DiskFull        Code = "disk-full"
	KernelResources Code = "kernel-resources"
	Storage         Code = "storage"
	IllegalAccess   Code = "illegal-access"
	DeviceAssert    Code = "device-assert"
	NCCLTimeout     Code = "nccl-timeout"
	NCCLError       Code = "nccl-error"
	GPUHardware     Code = "gpu-hardware"
	Driver          Code = "driver"
	PortInUse       Code = "port-in-use"
	Preempted       Code = "preempted"
	Hang            Code = "hang"
	Segfault        Code = "segfault"
	Diverged        Code = "diverged"
	UserError       Code = "user-error"
	Unknown         Code = "unknown"
	None            Code = "none"
)

// OutOfMemory reports whether memory ran out, of a GPU or of the host.
func (c Code) OutOfMemory() bool { return c == CUDAOOM || c == HostOOM }

// A Phase is the part of training that an attempt was in when it ended.
type Phase string

const (
	Load       Phase = "load"
	Forward    Phase = "forward"
	Backward   Phase = "backward"
	Optimizer  Phase = "optimizer"
	Eval       Phase = "eval"
	Rollout    Phase = "rollout" // generation, by an engine or by the model
	Save       Phase = "save"
	Collective Phase = "collective"
	NoPhase    Phase = "unknown"
)

// LeavesNoGroup reports whether a job that goes on after a failure with this cause has joined no process group.
func (c Code) LeavesNoGroup() bool { return c == Driver || c == PortInUse }
