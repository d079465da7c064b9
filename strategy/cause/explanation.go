package cause

import "slices"

// An Explanation is what a message says beyond its cause.
type Explanation struct {
	// Title replaces the title of the cause; empty: it does not.
	Title string
	// Advice replaces the hint of the cause, in lower case and without a full stop; empty: it does
	// not.
	Advice string
}

// explanations is the catalogue of messages that need another title or another advice than their
// cause. The first match wins.
var explanations = []struct {
	codes  []Code
	remark Remark   // of the finding, or
	words  []string // one of them in its text
	Explanation
}{
	// Files.
	{codes: []Code{UserError}, words: words("PytorchStreamReader", "The file might be corrupted", "corrupt file",
		"Error while deserializing header", "UnpicklingError", "BadZipFile", "EOFError: Ran out of input",
		"nable to open file ("), Explanation: Explanation{
		"a file cannot be read",
		"the file that the job reads is incomplete, or another file than it expects: start from an older checkpoint, or fetch the file again"}},
	{codes: []Code{Unknown}, words: words(" cannot be opened."), Explanation: Explanation{
		"a file cannot be saved",
		"the file that the job saves could not be made: its folder has to exist, to be writable and to have space"}},
	{codes: []Code{Unknown, UserError}, words: words("Too many open files", "received 0 items of ancdata"),
		Explanation: Explanation{
			"too many files are open",
			`the process has as many open files as "ulimit -n" allows: raise it, or let the loader share tensors by files (torch.multiprocessing.set_sharing_strategy("file_system"))`}},
	{codes: []Code{Unknown}, words: words("DataLoader timed out after"), Explanation: Explanation{
		"the data loader timed out",
		"a worker of the loader did not deliver a batch in time: look at the storage and at what a sample does, and raise the loader's timeout"}},
	{codes: []Code{Unknown}, words: words("gpurun's hook failed in a pass"), Explanation: Explanation{
		"gpurun's hook failed",
		"this is an error of gpurun, whose traceback is in the rank's hook-error.txt: run the job with --no-in-place, and report it"}},
	{codes: []Code{Unknown}, words: words("Error in sys.excepthook:"), Explanation: Explanation{
		"an exception ended the job, and its text is not here",
		"a hook of the job for exceptions failed itself: look for the exception in the hook's own log, or run without the hook"}},
	{codes: []Code{UserError}, words: words(": undefined symbol: "), Explanation: Explanation{
		"", "a compiled package was built for another version of PyTorch or of CUDA: install its build for this one, or build it again here"}},
	{codes: []Code{UserError, Unknown}, words: words("CalledProcessError: Command '['/usr/bin/gcc'", "gcc', ", "g++', ",
		"c++', ", "nvcc', ", "'ninja', "), Explanation: Explanation{
		"", "a compiler failed: run its command for its own message; often the headers of Python (python3-dev) or CUDA, or libcuda, are missing there"}},
	{codes: []Code{Unknown}, remark: SaysHook, Explanation: Explanation{
		"an error of gpurun's own hook ended the process",
		"this is a bug of gpurun, not of the job: run it with --mode off, which loads no hook, and report the traceback"}},
	{codes: []Code{Unknown}, words: words("A worker died or was killed while executing", "WorkerCrashedError",
		"ActorDiedError", "RayActorError"), Explanation: Explanation{
		"a Ray worker died",
		"Ray does not know why, and lists guesses: look at the worker's own log (ray logs, python-core-worker-*.log), and for oom-kill in the kernel log of its node (dmesg)"}},
	{codes: []Code{Unknown}, remark: SaysKilled, Explanation: Explanation{"a process was killed by SIGKILL", ""}},
	// Launchers.
	{codes: []Code{UserError}, words: words("unrecognized arguments: --local-rank",
		"unrecognized arguments: --local_rank"), Explanation: Explanation{
		"", "torch.distributed.launch passes --local-rank: start the script by torchrun, which sets LOCAL_RANK, or let it accept the argument"}},
	{codes: []Code{Preempted}, words: words("KeyboardInterrupt", "SIGINT", "nterrupted by user",
		"nterrupted by the user"), Explanation: Explanation{
		"the job was interrupted from outside (Ctrl-C or SIGINT)", ""}},
	// Nodes and GPUs.
	{codes: []Code{GPUHardware}, remark: SaysNode, Explanation: Explanation{
		"a node failed", "a node of the job failed: start the job again on other nodes, and report it to the cluster's administrators"}},
	{codes: []Code{GPUHardware}, words: words("NVRM: Xid"), Explanation: Explanation{
		"", "drain the node, and reset or power off its GPU before jobs use it again; errors of its PCIe slot before this line point to the slot, the riser or the power"}},
	{codes: []Code{GPUOccupied}, words: words("desired GPU memory utilization"), Explanation: Explanation{
		"", "stop what holds the GPU's memory (nvidia-smi lists it), or let the engine take a smaller share: gpu_memory_utilization"}},
	// Errors of CUDA that have no cause.
	{codes: []Code{Unknown}, words: words("unspecified launch failure"), Explanation: Explanation{
		"a GPU kernel crashed",
		"run once with CUDA_LAUNCH_BLOCKING=1 to find the kernel, and look for Xid events in the kernel log (dmesg): without one suspect the kernel, with one the GPU"}},
	{codes: []Code{Unknown}, words: words("the launch timed out and was terminated"), Explanation: Explanation{
		"a GPU kernel ran too long",
		"the GPU also drives a display, so the driver ends kernels after some seconds: use a GPU without a display, or smaller kernels"}},
	{codes: []Code{Unknown}, words: words("CUDNN_STATUS_", "CUBLAS_STATUS_", "Unable to find a valid cuDNN algorithm"),
		Explanation: Explanation{
			"a library of CUDA failed",
			"the message does not say why: look first whether the GPU's memory is full (nvidia-smi), then whether another version of cuDNN or cuBLAS is in LD_LIBRARY_PATH; CUDA_LAUNCH_BLOCKING=1 shows a kernel that failed before"}},
	// Assertions on the device, by their expressions.
	{codes: []Code{DeviceAssert}, words: words("t >= 0 && t < n_classes", "cur_target >= 0", "t >= 0 && t < C"),
		Explanation: Explanation{
			"", "a label is none of the classes: compare the labels' least and largest value with the number of the model's outputs, and ignore_index"}},
	{codes: []Code{DeviceAssert}, words: words("srcIndex < srcSelectDimSize", "index out of bounds",
		"-sizes[i] <= index"), Explanation: Explanation{
		"", "an index is out of range: compare token ids with the rows of the embedding, and positions with its length"}},
	// The driver.
	{codes: []Code{Driver}, words: words("forward compatibility was attempted on non supported HW"),
		Explanation: Explanation{
			"the loaded libcuda is newer than the driver",
			"this GPU does not support a cuda-compat package: remove it from LD_LIBRARY_PATH or from the image, or update the host's driver"}},
	{codes: []Code{Driver}, words: words("system not yet initialized"), Explanation: Explanation{
		"the node's fabric manager is not running",
		"start nvidia-fabricmanager on the node, in the version of its driver (systemctl status nvidia-fabricmanager)"}},
	{codes: []Code{Driver}, words: words("Found no NVIDIA driver", "No CUDA GPUs are available",
		"no CUDA-capable device is detected"), Explanation: Explanation{
		"the job sees no GPU",
		"look at nvidia-smi where the job runs, at CUDA_VISIBLE_DEVICES, and whether the scheduler or the container gives it a GPU (--gres, --gpus)"}},
	{codes: []Code{Driver}, words: words("Torch not compiled with CUDA enabled"), Explanation: Explanation{
		"this PyTorch was built without CUDA", "install a PyTorch with CUDA for this driver, or train on the CPU"}},
	{codes: []Code{Driver}, words: words("Driver/library version mismatch"), Explanation: Explanation{
		"the driver and its library have different versions",
		"an update replaced the library while the old driver is loaded: restart the node, or load the new driver"}},
	{codes: []Code{Driver}, words: words("CUDA unknown error", "cuda runtime error (30)"), Explanation: Explanation{
		"CUDA cannot be initialised",
		"look whether nvidia-smi works there and whether CUDA_VISIBLE_DEVICES names GPUs that exist; after a suspend or an update, load nvidia_uvm again or restart the node"}},
	{codes: []Code{Driver}, words: words("provided PTX was compiled with an unsupported toolchain"),
		Explanation: Explanation{
			"the driver is older than the CUDA that compiled a kernel",
			"update the driver, or install packages that were compiled with an older CUDA"}},
	// Memory.
	{codes: []Code{HostOOM}, words: words("1455"), Explanation: Explanation{
		"", "Windows' page file is too small: enlarge it, or use fewer loader workers, each of which loads the libraries of CUDA again"}},
	{codes: []Code{CUDAOOM}, words: words("NCCL WARN", "Failed to CUDA calloc", "Failed to CUDA malloc"),
		Explanation: Explanation{
			"", "NCCL found no memory for its own buffers, so the GPU was full before: look at nvidia-smi for other processes, give each rank its own GPU (torch.cuda.set_device), and leave some hundred MiB free"}},
	{codes: []Code{CUDAOOM}, words: words("MPS backend"), Explanation: Explanation{
		"", "use a smaller micro batch or activation checkpointing, and close other programs, which share this memory"}},
	// Crashes, and numbers that are not finite.
	{codes: []Code{Segfault}, words: words("DataLoader worker", "encountered in worker"), Explanation: Explanation{
		"a worker of the data loader crashed in native code",
		"load the data with num_workers=0 and PYTHONFAULTHANDLER=1 once, which shows the line that crashes"}},
	{codes: []Code{Diverged}, words: words("returned nan values in its"), Explanation: Explanation{
		"anomaly detection found NaN",
		"autograd's anomaly mode stops at the first NaN, and its warning above shows the forward call; with a GradScaler, which skips such a step, an overflow is usual: turn detect_anomaly off there"}},
	{codes: []Code{Diverged}, words: words("iteration=0!", "iteration=0 ", "at iteration 0", "at step 0"),
		Explanation: Explanation{
			"the loss is not finite from the first step",
			"nothing has been learned yet, so it is not the learning rate: look at the inputs and labels (NaN, empty, wrong scale), at the initial weights, and whether this build of PyTorch supports the GPU"}},
}

// Explain is what a message of a cause says beyond the cause.
func Explain(code Code, text string) Explanation {
	remarks := Remarks(code, text)
	for _, e := range explanations {
		if slices.Contains(e.codes, code) && (contains(text, e.words) || e.remark != "" &&
			slices.Contains(remarks, e.remark)) {
			return e.Explanation
		}
	}
	return Explanation{}
}
