package cause

// hostPatterns match reports that the host has no memory left.
var hostPatterns = []pattern{
	// PyTorch's CPU allocator: 1.x and 2.x; the second form is Windows' and macOS'.
	{code: HostOOM, words: words("DefaultCPUAllocator: can't allocate memory"), device: "cpu"},
	{code: HostOOM, words: words("DefaultCPUAllocator: not enough memory"), device: "cpu"},
	{code: HostOOM, words: words("not enough memory: you tried to allocate"), device: "cpu"},
	// Intel's GPUs: the host's part of a transfer.
	{code: HostOOM, words: words("UR_RESULT_ERROR_OUT_OF_HOST_MEMORY")},
	{code: HostOOM, words: words("PI_ERROR_OUT_OF_HOST_MEMORY")},
	{code: HostOOM, words: words("ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY")},
	// Windows: the page file is too small, by Python, by Rust, for shared tensors. The words are the system's language.
	{code: HostOOM, words: words("[WinError 1455]")},
	{code: HostOOM, words: words("(os error 1455)")},
	{code: HostOOM, words: words("Os { code: 1455,")},
	{code: HostOOM, words: words("Couldn't open shared", "<1455>")},
	{code: HostOOM, words: words("[WinError 8] ")}, // ERROR_NOT_ENOUGH_MEMORY
	// Python and numpy.
	{code: HostOOM, words: words("MemoryError: Unable to allocate"), device: "cpu"},
	{code: HostOOM, words: words("MemoryError: std::bad_alloc"), device: "cpu"},
	{code: HostOOM, words: words("std::bad_alloc"), without: words("CUDA", "cuda"), device: "cpu"}, // C++ runtime
	// ENOMEM of any call; darknet prints errno after CUDA's error
	{code: HostOOM, words: words("Cannot allocate memory"), without: words("CUDA Error: "), device: "cpu"},
	{code: HostOOM, words: words("MemoryError"), whole: true, device: "cpu"},
	{code: HostOOM, words: words("ArrowMemoryError"), device: "cpu"},
	// OpenBLAS ends the process with exit code 1, or with a signal.
	{code: HostOOM, words: words("OpenBLAS", "malloc failed in"), device: "cpu"},
	{code: HostOOM, words: words("OpenBLAS", "emory allocation still failed"), device: "cpu"},
	{code: HostOOM, words: words("os error 12"), device: "cpu"}, // Rust: safetensors, tokenizers
	// Linux kernel log, in dmesg or a pod's events.
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
	{code: HostOOM, words: words("TERM_SWAP: ")},
	{code: HostOOM, words: words("job killed: mem", "exceeded limit")},
	{code: HostOOM, words: words("job killed: pmem", "exceeded limit")},
	{code: HostOOM, words: words("job killed: vmem", "exceeded limit")},
	{code: HostOOM, words: words("job killed: pvmem", "exceeded limit")},
	// Ray's memory monitor kills workers before the kernel does. A RayTaskError(OutOfMemoryError)
	// alone does not name the memory.
	{code: HostOOM, words: words("killed due to the node running low on memory")},
	{code: HostOOM, words: words("Memory on the node (", "exceeds the memory usage threshold")},
	{code: HostOOM, words: words(
		"Refer to the documentation on how to address the out of memory issue: https://docs.ray.io")},
	{code: HostOOM, words: words(" killed due to memory pressure (OOM)"), without: words(": 0 Workers (tasks")},
	// PyTorch's DataLoader: only the kernel kills one worker and leaves its
	// parent. Without a traceback the line may stem from a shutdown, see scanner.
	{code: HostOOM, words: words("DataLoader worker (pid", "is killed by signal: Killed")},
	{code: HostOOM, weight: WeightWarning, words: words("DataLoader worker (", "is killed by signal: Killed")},
	// cudaHostAlloc by name.
	{code: HostOOM, words: words("cudaHostAlloc", "out of memory")},
	{code: HostOOM, words: words("CachingHostAllocator", "out of memory")},
}

// sharedMemoryPatterns match reports about /dev/shm. They precede those of memory and of disks
// because shared memory is memory in files.
var sharedMemoryPatterns = []pattern{
	// PyTorch's file_system and file_descriptor sharing: /torch_<pid>_<random>.
	{code: SharedMemory, words: words("unable to open shared memory object")},
	{code: SharedMemory, words: words("unable to write to file </torch_")},
	{code: SharedMemory, words: words("unable to resize file </torch_")},
	// without a name for an anonymous segment
	{code: SharedMemory, words: words("unable to mmap", "bytes from file <")},
	{code: SharedMemory, words: words("Couldn't open shared"), without: words("<1455>")}, // Windows
	{code: SharedMemory, words: words("unable to allocate shared memory")},
	{code: SharedMemory, words: words("error executing torch_shm_manager")},
	{code: SharedMemory, words: words("RuntimeError: torch_shm_manager at")},
	{code: SharedMemory, words: words("Unexpected bus error encountered in worker")},
	{code: SharedMemory, words: words("DataLoader worker", "is killed by signal: Bus error")},
	{code: SharedMemory, words: words("insufficient shared memory (shm)")},
	{code: SharedMemory, words: words("dataloader's workers are out of shared memory")},
	{code: SharedMemory, words: words("/dev/shm", "No space left on device")},
	{code: SharedMemory, words: words("No space left on device", "/dev/shm")},
	// it makes a semaphore
	{code: SharedMemory, weight: WeightWarning, words: words("[Errno 28] No space left on device",
		"joblib will operate in serial mode")},
	// NCCL: its segments are /dev/shm/nccl-*.
	{code: SharedMemory, words: words("Error while creating shared memory segment")},
	{code: SharedMemory, words: words("NCCL WARN Call to posix_fallocate failed : No space left on device")},
}

// diskPatterns match reports that a file system is full or read-only.
var diskPatterns = []pattern{
	// POSIX messages, as Python and Rust print them.
	{code: DiskFull, words: words("heckpoint", "No space left on device"), phase: Save},
	{code: DiskFull, words: words("No space left on device")},
	{code: DiskFull, words: words("isk quota exceeded")},
	// TensorFlow reports a lack of anything by the same class, and names the file that it writes.
	{code: DiskFull, weight: WeightWarning, words: words("events_writer.cc", "esource exhausted: ")},
	{code: DiskFull, words: words("kind: StorageFull")},
	{code: DiskFull, words: words("kind: FilesystemQuotaExceeded")},
	{code: DiskFull, words: words("no space left on device")},            // Go programs: containers' runtimes
	{code: DiskFull, words: words("low on resource: ephemeral-storage")}, // Kubernetes evicts
	{code: DiskFull, words: words("[Errno 27] File too large")},
	{code: DiskFull, weight: WeightWarning, words: words("[Errno 30] Read-only file system")},
	// numpy's tofile and save, 1.x and 2.x, when a write comes up short.
	{code: DiskFull, words: words("OSError: ", " requested and ", " written")},
	// PyTorch's zip writer, 2.x
	{code: DiskFull, words: words("open file failed with strerror: Read-only file system"), phase: Save},
	// Storage that fails, and may not fail again: errno's of a disk, of NFS, Lustre, CIFS and FUSE, as Python, Rust,
	// HDF5 and PyTorch to 1.5 print them.
	{code: Storage, words: words("[Errno 5] Input/output error")},
	{code: Storage, words: words("failed with Input/output error")},
	{code: Storage, words: words("error message = 'Input/output error'")},
	{code: Storage, words: words("message: \"Input/output error\"")},
	{code: Storage, words: words("Input/output error (os error 5)")},
	{code: Storage, words: words("Stale file handle")},
	{code: Storage, words: words("Stale NFS file handle")},
	{code: Storage, words: words("kind: StaleNetworkFileHandle")},
	{code: Storage, words: words("[Errno 70] Communication error on send")},
	{code: Storage, words: words("[Errno 107] Transport endpoint is not connected")},
	{code: Storage, words: words("[Errno 108] Cannot send after transport endpoint shutdown")},
	{code: Storage, words: words("[Errno 121] Remote I/O error")},
	{code: Storage, words: words("[Errno 112] Host is down: '")},
	{code: Storage, words: words("[Errno 110] Connection timed out: '/")},
	// PyTorch's zip writer when a write comes up short, which does not say why; 1.6 on.
	{code: Storage, words: words("PytorchStreamWriter failed writing"), phase: Save},
	{code: Storage, words: words("inline_container.cc", "unexpected pos"), phase: Save},
	{code: Storage, words: words("inline_container.cc", "file write failed"), phase: Save},
	{code: Unknown, words: words("RuntimeError: File ", " cannot be opened."), phase: Save},
}
