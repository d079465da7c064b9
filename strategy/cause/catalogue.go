package cause

import "slices"

// A Cause is one entry of the catalogue.
type Cause struct {
	Code Code `json:"code"`
	// Title names the cause in a sentence: "CUDA out of memory".
	Title string `json:"title"`
	// Hint is the advice, in lower case and without a full stop; empty: none.
	Hint string `json:"hint"`
	// Explains lists the causes that this one can bring about: its symptoms if both are found.
	Explains []Code `json:"explains,omitempty"`
}

// catalogue holds every cause, in the order of the codes.
var catalogue = []Cause{
	{CUDAOOM, "CUDA out of memory",
		"use less device memory: a smaller micro batch, activation checkpointing, sharding or offload",
		[]Code{NCCLTimeout, NCCLError, Segfault, Preempted}},
	{GPUOccupied, "the GPU's memory is held by another process",
		"wait for the other process to end, or stop it (nvidia-smi lists it)",
		[]Code{CUDAOOM, NCCLTimeout, NCCLError}},
	{HostOOM, "host out of memory",
		"use fewer loader workers, less pinned memory and less offload, or ask for more host memory",
		[]Code{NCCLTimeout, NCCLError, Segfault, Preempted}},
	{SharedMemory, "shared memory is full",
		"enlarge /dev/shm (docker: --shm-size or --ipc=host), or use fewer loader workers",
		[]Code{DiskFull, Segfault, NCCLTimeout, NCCLError}},
	{DiskFull, "a disk cannot be written", "free space or quota where the job writes, or point its output elsewhere",
		[]Code{Storage, NCCLTimeout, NCCLError}},
	{KernelResources, "a GPU kernel needs more resources than a multiprocessor has",
		"use a smaller block size or fewer stages for the kernel",
		[]Code{NCCLTimeout, NCCLError}},
	{Storage, "the storage failed",
		"a write or a read of files failed, which may succeed again: look at the kernel log, and at the state of the disk or the file server",
		[]Code{NCCLTimeout, NCCLError}},
	{IllegalAccess, "illegal memory access on the GPU",
		"run once with CUDA_LAUNCH_BLOCKING=1 to find the kernel, and suspect custom kernels first",
		[]Code{NCCLTimeout, NCCLError}},
	{DeviceAssert, "device-side assertion failed",
		"look for an index out of range (labels, token ids); CUDA_LAUNCH_BLOCKING=1 shows the operation",
		[]Code{IllegalAccess, NCCLTimeout, NCCLError}},
	{NCCLTimeout, "a collective operation timed out",
		"find the rank that did not take part: it hung, fell behind or took another branch",
		[]Code{NCCLError}},
	{NCCLError, "NCCL failed", "run with NCCL_DEBUG=INFO, and check the network interfaces and the links between GPUs",
		nil},
	{GPUHardware, "the GPU failed", "take the GPU out of service and check the kernel log for Xid events",
		[]Code{IllegalAccess, NCCLTimeout, NCCLError, Driver}},
	{Driver, "the GPU driver and the software do not match",
		"install a PyTorch that was built for this driver and this GPU",
		[]Code{NCCLError}},
	{PortInUse, "the rendezvous port is taken", "choose another port, or let gpurun choose a free one",
		[]Code{NCCLTimeout, NCCLError}},
	{Preempted, "the job was stopped from outside", "",
		[]Code{NCCLTimeout, NCCLError, Segfault}},
	{Hang, "the job hung",
		"look at where the ranks were: one that is not where the others wait took another branch, or waits for something else",
		[]Code{NCCLTimeout, NCCLError, Preempted}},
	{Segfault, "a process crashed in native code", "run with PYTHONFAULTHANDLER=1 to see where it crashed",
		[]Code{NCCLTimeout, NCCLError}},
	{Diverged, "the training diverged",
		"loss or gradients are no longer finite: lower the learning rate, or use a precision with a larger range",
		[]Code{DeviceAssert, NCCLTimeout, NCCLError}},
	{UserError, "the job itself failed", "look at the last lines that it wrote",
		[]Code{NCCLTimeout, NCCLError}},
	{Unknown, "unknown cause", "look at the end of each rank's log", nil},
	{None, "nothing fatal", "", nil},
}

// Lookup finds a cause by its code.
func Lookup(code Code) (Cause, bool) {
	i := slices.IndexFunc(catalogue, func(c Cause) bool { return c.Code == code })
	if i < 0 {
		return Cause{}, false
	}
	return catalogue[i], true
}

// All returns the catalogue, in the order of the codes.
func All() []Cause {
	return slices.Clone(catalogue)
}
