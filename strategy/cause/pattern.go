package cause

import "strings"

// A role says what a matching line is worth.
type role int

const (
	// proof: the line names a cause.
	proof role = iota
	// symptom: other failures bring the line about; it never is the cause while
	// a cause is there.
	symptom
	// weak: a warning, or a line that healthy jobs print too.
	weak
	// outlived: an out-of-memory error that the line itself says is dealt with.
	outlived
	// recovery: the job says that it skips, retries or reduces. The line is no
	// sighting; it makes the out-of-memory errors around it handled.
	recovery
)

// A pattern tells what a line of output means. Words are substrings that the
// line holds in that order, Without are substrings that it must not hold.
// Substrings keep a long line cheap where a regular expression would not.
type pattern struct {
	code    Code
	role    role
	words   []string
	without []string
	// whole says that the line holds nothing but the one word.
	whole  bool
	phase  Phase
	device string
}

func (p *pattern) matches(text string) bool {
	if p.whole {
		return strings.Trim(text, " *`") == p.words[0] // with the marks of text that was made bold or code
	}
	rest := text
	for _, w := range p.words {
		i := strings.Index(rest, w)
		if i < 0 {
			return false
		}
		rest = rest[i+len(w):]
	}
	for _, w := range p.without {
		if strings.Contains(text, w) {
			return false
		}
	}
	return true
}

// raised is the role of a pattern in the line that ends a traceback: an exception
// is no warning, though it may be another failure's.
func (p *pattern) raised() role {
	switch {
	case p.role != weak:
		return p.role
	case p.code == Unknown || p.code == UserError || p.code == NCCLError:
		return symptom
	}
	return proof
}

// classify returns the first pattern of the table that the line matches.
func classify(text string) *pattern {
	for i := range patterns {
		if patterns[i].matches(text) {
			return &patterns[i]
		}
	}
	return nil
}

func words(w ...string) []string { return w }

// patterns is the catalogue of lines. The first match wins, so that what a line
// says more exactly stands before what it says as well.
var patterns = join(
	recoveryPatterns, cudaPatterns, sharedMemoryPatterns, hostPatterns, diskPatterns, devicePatterns,
	networkPatterns, stopPatterns, otherPatterns,
)

func join(groups ...[]pattern) []pattern {
	var all []pattern
	for _, g := range groups {
		all = append(all, g...)
	}
	return all
}

// recoveryPatterns are the words of jobs that catch an out-of-memory error.
var recoveryPatterns = []pattern{
	// Composer (MosaicML) with automatic microbatching, 0.8 on.
	{code: CUDAOOM, role: outlived, words: words("CUDA out of memory detected")},
	{code: CUDAOOM, role: outlived, words: words("CUDA out of memory or excessive memory allocation retries detected")},
	{role: recovery, words: words("icrobatch size decreased from")},
	{role: recovery, words: words("icrobatch size will be decreased from")},
	// Ultralytics, 8.4 on.
	{code: CUDAOOM, role: outlived, words: words("CUDA out of memory with batch=", "educing to batch=")},
	{role: recovery, words: words("icro_batch_size from", "to", "OOM")},
	// fairseq: trainer.py logs these around "Ran out of memory with exception".
	{role: recovery, words: words("attempting to recover from OOM")},
	{role: recovery, words: words("OOM in all workers, skipping update")},
	{role: recovery, words: words("ran out of memory", "retrying batch")},
	{role: recovery, words: words("ran out of memory", "skipping batch")},
	// Loops of users: "CUDA out of memory, skipping batch 12".
	{code: CUDAOOM, role: outlived, words: words("ut of memory", "kipping")},
	{code: CUDAOOM, role: outlived, words: words("OOM", "kipping batch")},
	{code: CUDAOOM, role: outlived, words: words("ut of memory", "etrying with")},
	{code: CUDAOOM, role: outlived, words: words("kipping batch", "ut of memory")},
	{role: recovery, words: words("kipping batch")},
	{role: recovery, words: words("kipping this batch")},
	{role: recovery, words: words("kipping step due to OOM")},
	{role: recovery, words: words("ecovered from OOM")},
	{role: recovery, words: words("etrying with a smaller batch")},
	{role: recovery, words: words("etrying with smaller batch")},
	{role: recovery, words: words("etrying with batch size")},
	{role: recovery, words: words("etrying with batch_size")},
	{role: recovery, words: words("educing batch size to")},
	{role: recovery, words: words("educing batch size from")},
	{role: recovery, words: words("educing batch_size to")},
	{role: recovery, words: words("educed batch size to")},
	// accelerate.utils.find_executable_batch_size.
	{role: recovery, words: words("ecreasing batch size to")},
	// Lightning's batch size finder, 1.x and 2.x.
	{role: recovery, words: words("Batch size", "failed, trying batch size")},
	// Ultralytics' AutoBatch, YOLOv5 and later.
	{code: CUDAOOM, role: outlived, words: words("ut of memory", "sing default batch-size")},
	{code: CUDAOOM, role: outlived, words: words("alling back to", "ut of memory")},
	{code: CUDAOOM, role: outlived, words: words("ut of memory", "alling back to")},
	{code: CUDAOOM, role: outlived, words: words("CUDA out of memory", "using CPU")},
	// detectron2.utils.memory.retry_if_cuda_oom.
	{code: CUDAOOM, role: outlived, words: words("Attempting to copy inputs of", "due to CUDA OOM")},
}

// cudaPatterns are the ways of saying that a device has no memory left.
var cudaPatterns = []pattern{
	// torch.OutOfMemoryError by the allocator: 0.4 to 2.x; "HIP" is ROCm, "XPU"
	// is Intel's (2.3 on), "MPS backend" is Apple's (1.12 on). 1.x and 2.x lay
	// the figures out differently, see figures.go.
	{code: CUDAOOM, words: words("CUDA out of memory")},
	{code: CUDAOOM, words: words("HIP out of memory")},
	{code: CUDAOOM, words: words("XPU out of memory")},
	{code: CUDAOOM, words: words("can NOT allocate memory block with size larger than")}, // Intel's extension, 1.13 to 2.3
	{code: CUDAOOM, words: words("MPS backend out of memory")},
	{code: CUDAOOM, words: words("NPU out of memory")},
	// The cudaMallocAsync backend, 2.0 on; its figures stand on lines of their own.
	{code: CUDAOOM, words: words("would exceed allowed memory")},
	// cudaErrorMemoryAllocation outside of the caching allocator: contexts,
	// streams, libraries. "torch.AcceleratorError" is 2.8 on.
	{code: CUDAOOM, words: words("CUDA error", ": out of memory")},    // also flash-attn's and xFormers' "CUDA error (file:line): out of memory"
	{code: CUDAOOM, words: words("CUDA driver error: out of memory")}, // PyTorch 2.x with expandable_segments
	{code: CUDAOOM, words: words("Triton Error [CUDA]: out of memory")},
	{code: CUDAOOM, words: words("CUDA Error", "out of memory")},                            // darknet and its descendants
	{code: CUDAOOM, words: words("CUDA failed with error out of memory")},                   // CTranslate2
	{code: CUDAOOM, words: words("CUDA failure", "out of memory")},                          // ONNX Runtime
	{code: CUDAOOM, words: words("cudaMalloc", "out of memory")},                            // ggml, hand-written extensions
	{code: CUDAOOM, words: words("Failed to allocate memory for requested buffer of size")}, // ONNX Runtime's arena
	{code: CUDAOOM, words: words("HIP error: out of memory")},
	{code: CUDAOOM, words: words("CUDA error 2: out of memory")}, // NVIDIA Warp
	{code: CUDAOOM, words: words("cuda runtime error (2) : out of memory")},
	{code: CUDAOOM, words: words("THCudaCheck FAIL", ": out of memory")}, // PyTorch to 1.6
	{code: CUDAOOM, words: words("cudaErrorMemoryAllocation")},
	{code: CUDAOOM, words: words("CUDA_ERROR_OUT_OF_MEMORY"), without: words("failed to allocate", "retry", "evice: CUDA_ERROR_OUT")}, // driver API: JAX, TF, numba, CuPy
	{code: CUDAOOM, role: weak, words: words("CUDA_ERROR_OUT_OF_MEMORY")},                                                             // XLA's and TF's pools log each try, then ask for less
	{code: CUDAOOM, words: words("hipErrorOutOfMemory")},
	{code: CUDAOOM, words: words("hipErrorMemoryAllocation")},
	{code: CUDAOOM, words: words("Failed to CUDA calloc")}, // NCCL's last error, 2.19 on
	{code: CUDAOOM, words: words("Failed to CUDA malloc")},
	{code: CUDAOOM, words: words("Cuda failure", "out of memory")}, // NCCL, all versions; 2.x quotes the words
	{code: CUDAOOM, words: words("UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY")},
	{code: CUDAOOM, words: words("UR_RESULT_ERROR_OUT_OF_RESOURCES")},
	// Loops that catch it and give up: accelerate, Composer, fairseq.
	{code: CUDAOOM, words: words("No executable batch size found, reached zero")},
	{code: CUDAOOM, words: words("The train loop failed with an internal microbatch of size 1")},
	{code: CUDAOOM, words: words("OOM during optimization, irrecoverable")},
	// Libraries that fail to allocate their handle or workspace.
	{code: CUDAOOM, words: words("CUBLAS_STATUS_ALLOC_FAILED")},
	{code: CUDAOOM, words: words("CUDNN_STATUS_ALLOC_FAILED")},
	{code: CUDAOOM, words: words("CUSPARSE_STATUS_ALLOC_FAILED")},
	{code: CUDAOOM, words: words("CUSOLVER_STATUS_ALLOC_FAILED")},
	{code: CUDAOOM, words: words("CUFFT_ALLOC_FAILED")},
	{code: CUDAOOM, words: words("HIPBLAS_STATUS_ALLOC_FAILED")},
	// bitsandbytes csrc: "Error out of memory at line 380 in file .../pythonInterface.c".
	{code: CUDAOOM, words: words("Error out of memory at line")},
	// CuPy's pool: cupy.cuda.memory.OutOfMemoryError.
	{code: CUDAOOM, words: words("cupy", "OutOfMemoryError: Out of memory allocating")},
	{code: CUDAOOM, words: words("OutOfMemoryError: Out of memory allocating")},
	{code: CUDAOOM, words: words("Out of memory allocating ", " bytes (allocated so far")}, // Chainer leaves the class out
	{code: CUDAOOM, words: words("out of memory to allocate ", " bytes (total ")},          // CuPy to 6
	// RAPIDS memory manager.
	{code: CUDAOOM, words: words("std::bad_alloc: out_of_memory: CUDA error")},
	{code: CUDAOOM, words: words("std::bad_alloc: CUDA error")},
	// A TPU's vector and scalar memories are on the chip: a kernel's resources.
	{code: KernelResources, words: words("Ran out of memory in memory space vmem")},
	{code: KernelResources, words: words("Ran out of memory in memory space smem")},
	// JAX and XLA: RESOURCE_EXHAUSTED on a GPU or TPU; a TPU runs out when compiling.
	{code: CUDAOOM, words: words("compile", "Ran out of memory in memory space"), phase: Load},
	{code: CUDAOOM, words: words("Ran out of memory in memory space")},
	{code: CUDAOOM, role: weak, words: words("algorithm_picker.cc", "xhausted: Failed to")}, // XLA drops the choice
	{code: CUDAOOM, role: weak, words: words("algorithm_picker.cc", "RESOURCE_EXHAUSTED")},
	{code: CUDAOOM, role: weak, words: words("autotuner", "RESOURCE_EXHAUSTED")},
	{code: CUDAOOM, words: words("RESOURCE_EXHAUSTED: Out of memory")},
	{code: CUDAOOM, words: words("of memory while trying to allocate ")}, // the words before may stand on the line before
	{code: CUDAOOM, words: words("RESOURCE_EXHAUSTED: Failed to allocate request")},
	{code: CUDAOOM, words: words("Resource exhausted: Out of memory")},
	{code: CUDAOOM, words: words("RESOURCE_EXHAUSTED", "That was not possible")},
	{code: CUDAOOM, words: words("INTERNAL: Failed to allocate ", " bytes for new constant")},
	{code: CUDAOOM, words: words("Out of memory error on GPU", "Cannot allocate")}, // PaddlePaddle
	{code: CUDAOOM, words: words("ResourceExhaustedError", "failed to allocate memory")},
	// TensorFlow 1 and 2: the operation's file tells gradient kernels apart.
	{code: HostOOM, words: words("OOM when allocating tensor", "device:CPU"), device: "cpu"},
	{code: CUDAOOM, words: words("_grad_", "OOM when allocating tensor"), phase: Backward},
	{code: CUDAOOM, words: words("OOM when allocating tensor")},
	{code: CUDAOOM, words: words("Dst tensor is not initialized")}, // a copy to a GPU without room
	{code: CUDAOOM, role: weak, words: words("Allocator (GPU_", "ran out of memory trying to allocate")},
	{code: CUDAOOM, role: weak, words: words("Ran out of memory trying to allocate")},           // to 1.2
	{code: CUDAOOM, role: weak, words: words("Allocator ran out of memory trying to allocate")}, // Intel's extension
	// vLLM sizes its cache by what is left: the device is too small for the plan.
	{code: CUDAOOM, words: words("larger than the maximum number of tokens that can be stored in KV cache"), phase: Load},
	{code: CUDAOOM, words: words("No available memory for the cache blocks"), phase: Load},
	{code: CUDAOOM, words: words("KV cache is needed, which is larger than the available KV cache memory"), phase: Load},
	{code: CUDAOOM, words: words("Free memory on device", "is less than desired GPU memory utilization"), phase: Load},
}

// hostPatterns are the ways of saying that the host has no memory left.
var hostPatterns = []pattern{
	// PyTorch's CPU allocator: 1.x and 2.x; the second form is Windows' and macOS'.
	{code: HostOOM, words: words("DefaultCPUAllocator: can't allocate memory"), device: "cpu"},
	{code: HostOOM, words: words("DefaultCPUAllocator: not enough memory"), device: "cpu"},
	{code: HostOOM, words: words("not enough memory: you tried to allocate"), device: "cpu"},
	// Python and numpy.
	{code: HostOOM, words: words("MemoryError: Unable to allocate"), device: "cpu"},
	{code: HostOOM, words: words("MemoryError: std::bad_alloc"), device: "cpu"},
	{code: HostOOM, words: words("std::bad_alloc"), without: words("CUDA", "cuda"), device: "cpu"}, // C++ runtime
	{code: HostOOM, words: words("Cannot allocate memory"), device: "cpu"},                         // ENOMEM of any call
	{code: HostOOM, words: words("MemoryError"), whole: true, device: "cpu"},
	{code: HostOOM, words: words("ArrowMemoryError"), device: "cpu"},
	{code: HostOOM, words: words("os error 12"), device: "cpu"}, // Rust: safetensors, tokenizers
	// Linux kernel log, as dmesg or a pod's events show it.
	{code: HostOOM, words: words("oom-kill:constraint=")},
	{code: HostOOM, words: words("oom-kill:", "task=")},
	{code: HostOOM, words: words("emory cgroup out of memory: Kill")},
	{code: HostOOM, words: words("Out of memory: Kill")}, // "Killed process" since 4.x, "Kill process" before
	{code: HostOOM, words: words("invoked oom-killer")},
	// Slurm: slurmstepd 17 to 24, and sacct's state.
	{code: HostOOM, words: words("Detected", "oom-kill event")},
	{code: HostOOM, words: words("Detected", "oom_kill event")},
	{code: HostOOM, words: words("tasks have been OOM Killed")},
	{code: HostOOM, words: words("srun: error:", "Out Of Memory")},
	{code: HostOOM, words: words("Exceeded step memory limit")},
	{code: HostOOM, words: words("Exceeded job memory limit")},
	{code: HostOOM, words: words("xceeded memory limit", "being killed")},
	{code: HostOOM, words: words("OUT_OF_MEMORY"), without: words("CUDA", "ERROR_", "STATUS")},
	// Kubernetes.
	{code: HostOOM, words: words("OOMKilled")},
	{code: HostOOM, words: words("low on resource: memory")},
	// LSF and PBS.
	{code: HostOOM, words: words("TERM_MEMLIMIT")},
	{code: HostOOM, words: words("job killed: mem", "exceeded limit")},
	// Ray's memory monitor kills workers before the kernel does. A
	// RayTaskError(OutOfMemoryError) alone does not say which memory.
	{code: HostOOM, words: words("killed due to the node running low on memory")},
	{code: HostOOM, words: words(" killed due to memory pressure (OOM)"), without: words(": 0 Workers (tasks")},
	// PyTorch's DataLoader: nobody but the kernel kills one worker and leaves its
	// parent. Without a traceback the line may stem from a shutdown, see scanner.
	{code: HostOOM, words: words("DataLoader worker (pid", "is killed by signal: Killed")},
	{code: HostOOM, role: weak, words: words("DataLoader worker (", "is killed by signal: Killed")},
	// cudaHostAlloc by name.
	{code: HostOOM, words: words("cudaHostAlloc", "out of memory")},
	{code: HostOOM, words: words("CachingHostAllocator", "out of memory")},
}

// sharedMemoryPatterns are about /dev/shm. They stand before those of memory and
// of disks, for shared memory is memory, in files.
var sharedMemoryPatterns = []pattern{
	// PyTorch's file_system and file_descriptor sharing: /torch_<pid>_<random>.
	{code: SharedMemory, words: words("unable to open shared memory object")},
	{code: SharedMemory, words: words("unable to write to file </torch_")},
	{code: SharedMemory, words: words("unable to resize file </torch_")},
	{code: SharedMemory, words: words("unable to mmap", "bytes from file <")}, // without a name for an anonymous segment
	{code: SharedMemory, words: words("Couldn't open shared")},                // Windows
	{code: SharedMemory, words: words("unable to allocate shared memory")},
	{code: SharedMemory, words: words("error executing torch_shm_manager")},
	{code: SharedMemory, words: words("RuntimeError: torch_shm_manager at")},
	{code: SharedMemory, words: words("Unexpected bus error encountered in worker")},
	{code: SharedMemory, words: words("DataLoader worker", "is killed by signal: Bus error")},
	{code: SharedMemory, words: words("insufficient shared memory (shm)")},
	{code: SharedMemory, words: words("/dev/shm", "No space left on device")},
	{code: SharedMemory, words: words("No space left on device", "/dev/shm")},
	// NCCL: its segments are /dev/shm/nccl-*.
	{code: SharedMemory, words: words("Error while creating shared memory segment")},
	{code: SharedMemory, words: words("NCCL WARN Call to posix_fallocate failed : No space left on device")},
}

// diskPatterns are about file systems that take no more.
var diskPatterns = []pattern{
	// POSIX words, as Python and Rust print them.
	{code: DiskFull, words: words("heckpoint", "No space left on device"), phase: Save},
	{code: DiskFull, words: words("No space left on device")},
	{code: DiskFull, words: words("Disk quota exceeded")},
	{code: DiskFull, words: words("kind: StorageFull")},
	{code: DiskFull, words: words("kind: FilesystemQuotaExceeded")},
	{code: DiskFull, words: words("no space left on device")},            // Go programs: containers' runtimes
	{code: DiskFull, words: words("low on resource: ephemeral-storage")}, // Kubernetes evicts
	{code: DiskFull, words: words("[Errno 27] File too large")},
	{code: DiskFull, role: weak, words: words("[Errno 30] Read-only file system")},
	// numpy's tofile and save, 1.x and 2.x, when a write comes up short.
	{code: DiskFull, words: words("OSError: ", " requested and ", " written")},
	{code: DiskFull, words: words("open file failed with strerror: Read-only file system"), phase: Save}, // PyTorch's zip writer, 2.x
	// PyTorch's zip writer when a write comes up short; 1.6 on.
	{code: DiskFull, words: words("PytorchStreamWriter failed writing file"), phase: Save},
	{code: DiskFull, words: words("inline_container.cc", "unexpected pos"), phase: Save},
}

// devicePatterns are errors of GPUs, their kernels and their driver.
var devicePatterns = []pattern{
	// Triton and Numba: on-chip resources, not memory.
	{code: KernelResources, words: words("OutOfResources: out of resource")},
	{code: KernelResources, role: weak, words: words("out of resource: ")}, // autotuning drops the choice
	{code: KernelResources, words: words("too many resources requested for launch")},
	{code: KernelResources, words: words("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES")},
	{code: KernelResources, words: words("uses too much shared data")}, // ptxas
	// CUDA runtime errors as PyTorch words them.
	{code: Diverged, words: words("Assertion `probability tensor contains either")}, // torch.multinomial
	{code: DeviceAssert, words: words("device-side assert triggered")},
	{code: DeviceAssert, words: words("CUDA_ERROR_ASSERT")},
	{code: DeviceAssert, words: words("Assertion `", "` failed.", "thread: [")},
	{code: DeviceAssert, words: words("block: [", "thread: [", "Assertion `")}, // a terminal may break the line before "failed"
	{code: DeviceAssert, words: words("Device-side assertion `", "' failed")},  // ROCm
	{code: IllegalAccess, words: words("an illegal memory access was encountered")},
	{code: IllegalAccess, words: words("CUDA_ERROR_ILLEGAL_ADDRESS")},
	{code: IllegalAccess, words: words("cudaErrorIllegalAddress")},
	{code: IllegalAccess, words: words("CUDA error: misaligned address")},
	{code: IllegalAccess, words: words("CUDA error: invalid address space")},
	{code: IllegalAccess, words: words("operation not supported on global/shared address space")}, // a wild pointer
	{code: IllegalAccess, words: words("an illegal instruction was encountered")},
	{code: IllegalAccess, words: words("Memory access fault by GPU node")}, // ROCm
	{code: GPUHardware, words: words("uncorrectable ECC error")},
	{code: GPUHardware, words: words("CUDA_ERROR_ECC_UNCORRECTABLE")},
	{code: GPUHardware, words: words("uncorrectable NVLink error")},
	{code: GPUHardware, words: words("fallen off the bus")}, // the driver breaks the sentence over lines where it finds the GPU gone
	{code: GPUHardware, words: words("GPU is lost")},
	{code: GPUHardware, words: words("ouble bit ECC")},
	{code: GPUHardware, words: words("ouble-bit ECC")},
	{code: GPUHardware, words: words("GPU requires reset")},
	{code: GPUHardware, words: words("CUDA error: hardware stack error")},
	{code: GPUHardware, words: words("hardware error", "CUDA error")},
	{code: GPUHardware, words: words("CUDA error: ", "over nvlink or a hardware error")},
	{code: Unknown, words: words("NVRM: Xid")},                        // the number decides, see scanner
	{code: Driver, role: weak, words: words("failed call to cuInit")}, // TensorFlow goes on without a GPU
	{code: Driver, words: words("no kernel image is available for execution")},
	{code: Driver, words: words("CUDA driver version is insufficient for CUDA runtime version")},
	{code: Driver, words: words("NVIDIA driver on your system is too old")},
	{code: Driver, words: words("Found no NVIDIA driver on your system")},
	{code: Driver, words: words("No CUDA GPUs are available")},
	{code: Driver, words: words("no CUDA-capable device is detected")},
	{code: Driver, words: words("Torch not compiled with CUDA enabled")},
	{code: Driver, words: words("system not yet initialized")}, // fabric manager is not up
	{code: Driver, words: words("forward compatibility was attempted on non supported HW")},
	{code: Driver, words: words("provided PTX was compiled with an unsupported toolchain")},
	{code: Driver, words: words("CUDA unknown error - this may be due to an incorrectly set up environment")},
	{code: Driver, words: words("Failed to initialize NVML: Driver/library version mismatch")},
	{code: GPUOccupied, words: words("all CUDA-capable devices are busy or unavailable")},
	{code: GPUOccupied, words: words("CUDA-capable device(s) is/are busy or unavailable")},
	// Failures that the words do not explain: memory, hardware or a bug.
	{code: Unknown, words: words("CUDA error: unknown error")},
	{code: Unknown, words: words("unspecified launch failure")},
	{code: Unknown, words: words("the launch timed out and was terminated")},
	{code: Unknown, words: words("CUDNN_STATUS_NOT_INITIALIZED")},
	{code: Unknown, words: words("CUDNN_STATUS_INTERNAL_ERROR")},
	{code: Unknown, words: words("CUDNN_STATUS_EXECUTION_FAILED")},
	{code: Unknown, words: words("CUDNN_STATUS_MAPPING_ERROR")},
	{code: Unknown, words: words("Unable to find a valid cuDNN algorithm to run convolution")}, // often memory, which the words do not prove
	{code: Unknown, words: words("CUBLAS_STATUS_NOT_INITIALIZED")},
	{code: Unknown, words: words("CUBLAS_STATUS_INTERNAL_ERROR")},
	{code: Unknown, words: words("CUBLAS_STATUS_EXECUTION_FAILED")},
}

// networkPatterns are about collectives, stores and ports. Nearly all of them
// are what the other ranks print when one rank dies.
var networkPatterns = []pattern{
	// ProcessGroupNCCL's watchdog, 1.x and 2.x.
	{code: NCCLTimeout, role: symptom, words: words("Watchdog caught collective operation timeout"), phase: Collective},
	{code: NCCLTimeout, role: symptom, words: words("Timeout at NCCL work"), phase: Collective},
	{code: NCCLTimeout, role: symptom, words: words("Heartbeat monitor timed out"), phase: Collective},
	{code: NCCLTimeout, role: symptom, words: words("Timed out initializing process group in store based barrier"), phase: Load},
	{code: NCCLTimeout, role: symptom, words: words("Watchdog caught collective operation"), phase: Collective},
	{code: NCCLTimeout, role: symptom, words: words("failed to pass monitoredBarrier"), phase: Collective},
	{code: NCCLTimeout, role: symptom, words: words("monitoredBarrier", "failed to pass"), phase: Collective},
	{code: NCCLTimeout, role: symptom, words: words("Timed out waiting", "ms for recv operation to complete"), phase: Collective}, // Gloo
	{code: NCCLTimeout, role: symptom, words: words("Timed out waiting", "ms for send operation to complete"), phase: Collective},
	// NCCL binds to ports that the system chooses, not to the rendezvous'.
	{code: NCCLError, role: weak, words: words("NCCL WARN ", "ddress already in use")},
	// Ports: TCPStore, Gloo, Python's sockets. TCPStore warns of an address family
	// that fails, and goes on with the other.
	{code: PortInUse, role: weak, words: words("[W", "ddress already in use")},
	{code: PortInUse, words: words("EADDRINUSE")},
	{code: PortInUse, words: words("ddress already in use")},
	{code: PortInUse, words: words("The server socket has failed to listen on any local network address")},
	// NCCL's own errors; ncclRemoteError is a peer that went away.
	{code: NCCLError, role: symptom, words: words("ncclRemoteError")},
	{code: NCCLError, role: symptom, words: words("NCCL communicator was aborted")},
	{code: NCCLError, role: symptom, words: words("remote process exited or there was a network error")},
	{code: NCCLError, role: symptom, words: words("NCCL watchdog thread terminated with exception")},
	{code: NCCLError, role: symptom, words: words("unhandled cuda error")},
	{code: NCCLError, words: words("NCCL error in:")},
	{code: NCCLError, words: words("unhandled system error")}, // without the place: DataParallel's "NCCL Error 2"
	{code: NCCLError, words: words("ncclSystemError")},
	{code: NCCLError, words: words("ncclInternalError")},
	{code: NCCLError, words: words("ncclInvalidUsage")},
	{code: NCCLError, words: words("ncclUnhandledCudaError")},
	{code: NCCLError, words: words("Duplicate GPU detected")},
	{code: NCCLTimeout, role: symptom, words: words("Some NCCL operations have failed or timed out"), phase: Collective}, // said after either
	{code: NCCLError, words: words("NCCL failure ")},                                                                     // NVIDIA's tests
	{code: NCCLError, role: weak, words: words("NCCL WARN ")},
	// Gloo's peers, and NCCL's bootstrap over the store.
	{code: NCCLError, role: symptom, words: words("gloo", "Connection closed by peer")},
	{code: NCCLError, role: symptom, words: words("gloo", "Connection reset by peer")},
	{code: NCCLError, role: symptom, words: words("is setting up NCCL communicator and retrieving ncclUniqueId")},
	// Stores and peers that are gone.
	{code: Unknown, role: symptom, words: words("recvValueWithTimeout failed")},
	{code: Unknown, role: symptom, words: words("recvValue failed on SocketImpl")},
	{code: Unknown, role: symptom, words: words("Failed to recv, got 0 bytes")},
	{code: Unknown, role: symptom, words: words("Connection was likely closed. Did the remote server shutdown or crash")},
	{code: Unknown, role: symptom, words: words("Connection closed by peer")},
	// Every client of a network logs these, and most try again.
	{code: Unknown, role: weak, words: words("Connection reset by peer")},
	{code: Unknown, role: weak, words: words("Broken pipe")},
	{code: Unknown, role: symptom, words: words("The client socket has timed out after")},
	{code: Unknown, role: symptom, words: words("torch.distributed.DistStoreError")},
	{code: Unknown, role: symptom, words: words("torch.distributed.DistNetworkError")},
	{code: Unknown, role: weak, words: words("Error waiting on exit barrier")},
	{code: Unknown, role: weak, words: words("RendezvousConnectionError")},
	{code: Unknown, role: symptom, words: words("RendezvousTimeoutError")},
}

// stopPatterns are about jobs that somebody ended.
var stopPatterns = []pattern{
	// Slurm, 14 to 24. A cancelled step follows the failure of one of its tasks;
	// a cancelled job is somebody's decision.
	{code: Preempted, words: words("*** JOB", "CANCELLED AT")},
	{code: Preempted, words: words("CANCELLED AT", "DUE TO")},
	{code: Preempted, words: words("DUE TO PREEMPTION")},
	{code: Preempted, words: words("DUE TO TIME LIMIT")},
	{code: Preempted, role: symptom, words: words("*** STEP", "CANCELLED AT")},
	{code: Preempted, words: words("Received SIGTERM", "preempt")},
	{code: Preempted, words: words("job killed: walltime")},                    // PBS
	{code: Preempted, words: words("timeout: sending signal ", " to command")}, // coreutils' timeout -v
	{code: Preempted, words: words("TERM_RUNLIMIT")},                           // LSF
	{code: Preempted, words: words("TERM_OWNER")},                              // LSF
	{code: Preempted, role: symptom, words: words("pod was preempted")},        // Kubernetes
	// Shells, Python and Lightning.
	{code: Preempted, role: symptom, words: words("Terminated"), whole: true},
	{code: Preempted, role: symptom, words: words("KeyboardInterrupt"), whole: true},
	{code: Preempted, role: symptom, words: words("Detected KeyboardInterrupt")},
	{code: Preempted, role: symptom, words: words("Received SIGTERM")},
	// torch.distributed.elastic: the agent was told to stop.
	{code: Preempted, role: symptom, words: words("SignalException: Process", "got signal:")},
	{code: Preempted, role: symptom, words: words("death signal, shutting down workers")},
	{code: Preempted, role: symptom, words: words("closing signal SIGHUP")}, // it passes on what it was sent
	{code: Preempted, role: symptom, words: words("closing signal SIGINT")},
	// submitit.
	{code: Preempted, words: words("Caught signal", "this job is preempted")},
	{code: Preempted, words: words("Cluster is preempted")}, // SkyPilot
}

// otherPatterns are crashes, divergence and reports of exits.
var otherPatterns = []pattern{
	// Python's faulthandler, shells, glibc.
	{code: Segfault, words: words("Fatal Python error: Segmentation fault")},
	{code: Segfault, words: words("Fatal Python error: Bus error")},
	{code: Segfault, words: words("Segmentation fault")},
	{code: Segfault, words: words("Segmentation Fault")},                  // pygame's handler
	{code: Segfault, words: words("Signal 11 (SIGSEGV) received by PID")}, // elastic
	{code: Segfault, words: words("Signal 7 (SIGBUS) received by PID")},
	{code: Segfault, words: words("DataLoader worker", "is killed by signal: Segmentation fault")},
	{code: Segfault, words: words("terminated with signal SIGSEGV")}, // torch.multiprocessing.spawn
	{code: Segfault, words: words("died with <Signals.SIGSEGV")},     // subprocess: accelerate's launcher
	{code: Segfault, words: words("exits with return code = -11")},   // DeepSpeed's launcher
	{code: Segfault, words: words("Bus error (core dumped)")},
	{code: Segfault, words: words("Bus error"), whole: true},
	{code: Segfault, words: words("double free or corruption")},
	{code: Segfault, words: words("malloc(): corrupted")},
	{code: Unknown, role: symptom, words: words("DataLoader worker", "exited unexpectedly")},
	{code: Unknown, role: symptom, words: words("DataLoader worker", "is killed by signal: ")}, // Terminated, Aborted: by whom, it does not say
	// Frameworks that give up on non-finite numbers.
	{code: Diverged, words: words("Current loss scale already at minimum")}, // DeepSpeed, apex
	{code: Diverged, words: words("Minimum loss scale reached")},            // fairseq
	{code: Diverged, words: words("FloatingPointError", "loss")},            // detectron2, fairseq
	{code: Diverged, words: words("Loss became infinite or NaN")},           // detectron2
	{code: Diverged, words: words("Loss is nan", "stopping training")},      // DETR and its descendants
	{code: Diverged, words: words("Loss is inf", "stopping training")},
	{code: Diverged, words: words("found NaN in local grad norm")},                       // Megatron-LM
	{code: Diverged, words: words("Rank", "found NaN in", "loss")},                       // Megatron-LM
	{code: Diverged, words: words("Function", "returned nan values in its")},             // torch.autograd anomaly mode
	{code: Diverged, words: words("The loss returned in `training_step` is nan or inf")}, // Lightning
	{code: Diverged, words: words("Error: ", "oss is nan")},
	{code: Diverged, words: words("Error: ", "oss is NaN")},
	{code: Diverged, words: words("Error: ", "NaN loss")},
	{code: Diverged, words: words("Error: ", "nan loss")},
	{code: Diverged, words: words("probability tensor contains either `inf`, `nan`")}, // torch.multinomial
	{code: Diverged, words: words("constraint ", "Real()", "found invalid values")},   // torch.distributions: only NaN is no real number
	{code: Diverged, words: words("found invalid values", "nan")},                     // torch.distributions
	{code: Diverged, role: weak, words: words("educing loss scale to ", "e-")},        // apex halves it without end
	{code: Diverged, role: weak, words: words("loss=nan")},
	{code: Diverged, role: weak, words: words("loss: nan")},
	{code: Diverged, role: weak, words: words("loss': nan")},
	{code: Diverged, role: weak, words: words("loss\": NaN")},
	{code: Diverged, role: weak, words: words("grad_norm': nan")},
	{code: Diverged, role: weak, words: words("grad_norm\": NaN")},
	// Pipes of Python's multiprocessing run out of descriptors without saying so.
	{code: Unknown, words: words("received 0 items of ancdata")},
	{code: Unknown, words: words("Too many open files")},
	{code: Unknown, words: words("DataLoader timed out after")},
	// Storage that fails, and is not full.
	{code: Unknown, words: words("[Errno 5] Input/output error")},
	{code: Unknown, words: words("failed with Input/output error")}, // PyTorch to 1.5
	{code: Unknown, words: words("[Errno 116] Stale file handle")},
	// torch.distributed.elastic's report of a worker that ended; 1.9 on.
	{code: Unknown, role: symptom, words: words("Signal 9 (SIGKILL) received by PID")},
	{code: Unknown, role: symptom, words: words("(exitcode: -9)")},
	{code: Unknown, role: symptom, words: words("(exitcode: -6)")},
	{code: Segfault, words: words("(exitcode: -11)")},
	{code: Segfault, words: words("(exitcode: -7)")},
	{code: Segfault, words: words(" exit code 139")}, // kubectl, IDEs
	{code: Segfault, words: words("exited with code 139")},
	{code: Segfault, words: words("exit code -11")}, // Composer
	{code: Segfault, words: words("exited with code -11")},
	{code: Segfault, words: words("returned non-zero exit status 3221225477")}, // Windows' access violation
	{code: Segfault, words: words("exit code -1073741819")},
	{code: Unknown, role: symptom, words: words("Signal 15 (SIGTERM) received by PID")},
	{code: Unknown, role: symptom, words: words("Signal 6 (SIGABRT) received by PID")},
	{code: Segfault, words: words("Signal 4 (SIGILL) received by PID")},
	{code: Segfault, words: words("Signal 8 (SIGFPE) received by PID")},
	{code: Unknown, role: symptom, words: words("died with <Signals.")},
	{code: Unknown, role: symptom, words: words("terminated with signal SIG")},
	{code: Unknown, role: symptom, words: words("process_executor.TerminatedWorkerError")}, // joblib
	{code: Unknown, role: symptom, words: words(" exit code 137")},                         // kubectl, IDEs
	{code: Unknown, role: symptom, words: words("exit code -9")},                           // Composer
	{code: Unknown, role: symptom, words: words("exited with code -9")},
	{code: Unknown, role: symptom, words: words("exit code -6")},
	{code: Unknown, role: symptom, words: words("exited with code -6")},
	{code: Unknown, role: symptom, words: words("exited with code 137")}, // docker compose
	{code: Unknown, role: symptom, words: words("exit status 137")},
	{code: Unknown, role: symptom, words: words("A process in the process pool was terminated abruptly")}, // concurrent.futures
	{code: Unknown, role: symptom, words: words("One of the subprocesses has abruptly died during")},      // datasets
	{code: Unknown, role: symptom, words: words("A worker died or was killed while executing a task by an unexpected system error")},
	{code: Unknown, role: symptom, words: words("ray.exceptions.ActorDiedError")},
	{code: Unknown, role: symptom, words: words("ray.exceptions.RayActorError")},
	{code: Unknown, role: symptom, words: words("ray.exceptions.WorkerCrashedError")},
	// Shells and srun say that SIGKILL ended a process, not by whom.
	{code: Unknown, role: symptom, words: words(": line ", " Killed ")},
	{code: Unknown, role: symptom, words: words("Killed"), whole: true},
	{code: Unknown, role: symptom, words: words("srun: error:", "Killed")},
	// The job is called in a way that it cannot be: argparse, Python, shells.
	{code: UserError, words: words(": error: unrecognized arguments")},
	{code: UserError, words: words(": error: the following arguments are required")},
	{code: UserError, words: words(": error: argument -")},
	{code: UserError, words: words("can't open file", "[Errno 2] No such file or directory")},
	{code: UserError, role: weak, words: words(": command not found")},
	// A Python process ends with 1 by an exception or by sys.exit with a message.
	{code: UserError, role: weak, words: words("returned non-zero exit status 1.")}, // accelerate's launcher
	{code: Unknown, role: weak, words: words("CalledProcessError: Command", "returned non-zero exit status")},
	{code: UserError, role: symptom, words: words("failed (exitcode: 1)")},
	{code: UserError, role: symptom, words: words("exitcode  : 1 (pid: ")}, // elastic's table of failures
	{code: Unknown, role: symptom, words: words("multiprocessing.errors.ChildFailedError")},
	// How it ended is all that shells, Slurm, MPI and make say.
	{code: Segfault, words: words("segmentation fault (core dumped)")},
	{code: Segfault, words: words("zsh: segmentation fault")},
	{code: Segfault, words: words("Illegal instruction (core dumped)")},
	{code: Segfault, words: words("Floating point exception (core dumped)")},
	{code: Preempted, words: words("srun: error: Node failure on")},
	{code: Unknown, role: symptom, words: words("Aborted (core dumped)")},
	{code: Unknown, role: symptom, words: words("zsh: abort")},
	{code: Unknown, role: symptom, words: words("zsh: killed")},
	{code: Unknown, role: symptom, words: words("Killed: 9")},
	{code: Unknown, role: symptom, words: words("terminate called after throwing an instance of")},
	{code: Unknown, role: symptom, words: words("srun: error:", "Exited with exit code")},
	{code: Unknown, role: symptom, words: words("exited on signal 9 (Killed)")},
	{code: Unknown, role: symptom, words: words("exited on signal 6 (Aborted)")},
	{code: Unknown, role: symptom, words: words("detected that one or more processes exited with non-zero status")},
	{code: Unknown, role: symptom, words: words("BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES")},
	{code: Unknown, role: symptom, words: words("make: *** [", "] Error")},
	{code: Unknown, role: symptom, words: words("make: *** [", "] Killed")},
	{code: Unknown, role: symptom, words: words("exited with code 1")},        // docker compose
	{code: Unknown, role: symptom, words: words("finished with exit code 1")}, // IDEs
	{code: Unknown, role: symptom, words: words("terminated with exit code 1")},
	// glog and Ray abort.
	{code: Unknown, role: symptom, words: words(" Check failed: ")},
	{code: Unknown, role: symptom, words: words("*** Check failure stack trace: ***")},
	// Parents that name no reason: vLLM's and SGLang's, torch.multiprocessing's.
	{code: Unknown, role: symptom, words: words("See root cause above")},
	{code: Unknown, role: symptom, words: words("See stack trace for the root cause")},
	{code: Unknown, role: symptom, words: words("See stack trace for root cause")},
	{code: Unknown, role: symptom, words: words("See stack trace (above) for the root cause")},
	{code: Unknown, role: symptom, words: words("It usually means the child failed")},
	{code: Unknown, role: symptom, words: words("torch.multiprocessing.spawn.ProcessExitedException")},
	// DeepSpeed's launcher.
	{code: Unknown, role: symptom, words: words("exits with return code = ")},
}
