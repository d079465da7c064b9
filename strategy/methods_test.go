package strategy

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy/cause"
)

const (
	oldDriver = "/v/torch/cuda/__init__.py:107: UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 11040).\n"
	noGroup   = "Traceback (most recent call last):\n  File \"t.py\", line 9, in <module>\n    f()\nValueError: Default process group has not been initialized, please make sure to call init_process_group.\n"
	handling  = "\nDuring handling of the above exception, another exception occurred:\n\n"
	cancelled = "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-03-02T10:00:00 ***\n"
)

// raise is a traceback with the frames, as "FILE LINE FUNCTION", that ends with the text.
func raise(text string, frames ...string) string {
	var b strings.Builder
	b.WriteString("Traceback (most recent call last):\n")
	for _, f := range frames {
		part := strings.Fields(f)
		b.WriteString("  File \"" + part[0] + "\", line " + part[1] + ", in " + part[2] + "\n    f()\n")
	}
	return b.String() + text + "\n"
}

// TestRules: each rule decides logs of its kind, and is named.
func TestRules(t *testing.T) {
	for _, c := range []struct {
		name, log string
		cause     cause.Code
		rule      Rule   // among the diagnosis' rules
		sentence  string // a part of it, or of the advice
	}{
		{"a step is cancelled after a task aborted", "srun: error: n1: task 3: Aborted\nsrun: Terminating job step 7.0\n" + cancelled, cause.Unknown, RuleConsequence, "unknown reason"},
		{"a step is cancelled, and nothing came before", cancelled, cause.Preempted, RuleSymptom, ""},
		{"a step is cancelled after an error", leftByValue + cancelled, cause.UserError, RuleConsequence, "ValueError"},
		{"an event that names the one before it", "[ 1.0] NVRM: Xid (PCI:0000:06:00): 45, pid=7, name=python, Ch 00000008, caused by previous Xid 149\n", cause.GPUHardware, RuleMessage, ""},
		{"a channel's cleanup alone", "[ 1.0] NVRM: Xid (PCI:0000:06:00): 45, pid=7, name=python, Ch 00000008\n", cause.Preempted, RuleMessage, ""},
		{"Ctrl-C in a handler", raise("queue.Empty", "t.py 3 wait") + handling + raise("KeyboardInterrupt", "t.py 9 <module>", "t.py 5 wait"), cause.Preempted, RuleSignal, "interrupted from outside (Ctrl-C or SIGINT)"},
		{"Ctrl-C in a handler of a memory error", raise("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "t.py 3 step") + handling + raise("KeyboardInterrupt", "t.py 9 <module>", "t.py 5 step"), cause.CUDAOOM, RuleMessage, ""},
		{"SIGTERM, by DeepSpeed's launcher", "[INFO] [launch.py:316:sigkill_handler] Main process received SIGTERM, exiting\n", cause.Preempted, RuleSymptom, ""},
		{"an exception that Python ignores", "Exception ignored in: <function Loader.__del__ at 0x7f>\n" + raise("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "t.py 3 __del__"), cause.None, RuleIgnored, ""},
		{"an exception that Python 3.13 ignores", "Exception ignored while calling deallocator <function Loader.__del__ at 0x7f>:\n" + raise("AttributeError: 'Loader' object has no attribute 'f'", "t.py 3 __del__"), cause.None, RuleIgnored, ""},
		{"the path in the message decides", raise("OSError: [Errno 28] No space left on device: '/tmp/pymp-1'", "/v/torch/multiprocessing/reductions.py 3 reduce_storage"), cause.DiskFull, RuleMessage, "file system of /tmp/pymp-1"},
		{"a path in shared memory", raise("OSError: [Errno 28] No space left on device: '/dev/shm/psm_1'", "/v/torch/multiprocessing/reductions.py 3 reduce_storage"), cause.SharedMemory, RuleMessage, ""},
		{"no path in the message", raise("OSError: [Errno 28] No space left on device", "/v/torch/multiprocessing/reductions.py 3 reduce_storage"), cause.SharedMemory, RuleMessage, ""},
		{"no process group, under an old driver", oldDriver + noGroup, cause.Driver, RuleRoot, ""},
		{"no process group, since the port was taken", "INFO:root:no distributed training: The server socket has failed to listen on any local network address. The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).\nepoch 0\n" + noGroup, cause.PortInUse, RuleRoot, "port"},
		{"CUDA cannot be initialised", raise("RuntimeError: cuda runtime error (30) : unknown error at /b/aten/src/THC/THCGeneral.cpp:51", "t.py 3 <module>", "/v/torch/cuda/__init__.py 162 _lazy_init"), cause.Driver, RuleMessage, ""},
		{"an inference engine on a GPU that is in use", raise("ValueError: Free memory on device (31.44/47.38 GiB) on startup is less than desired GPU memory utilization (0.95, 45.01 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.", "t.py 3 <module>"), cause.GPUOccupied, RuleMessage, "nvidia-smi"},
		{"no process group", noGroup, cause.UserError, RuleError, "Default process group"},
		{"an assertion of Ray above the error", raise("AssertionError", "/v/site-packages/ray/worker.py 3 main") + raise("ImportError: undefined symbol: _ZN2at4", "w.py 3 <module>", "/v/flash_attn/__init__.py 3 <module>"), cause.UserError, RuleRoot, "ImportError"},
		{"each process is rank 0", strings.Repeat(raise("RuntimeError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: true", "t.py 3 <module>"), 3), cause.PortInUse, RuleMessage, "each believes to be rank 0"},
		{"wrong arguments under a launcher", "t.py: error: unrecognized arguments: --local-rank=3\n" + raise("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", "/v/bin/torchrun 8 <module>"), cause.UserError, RuleError, "t.py: error: unrecognized arguments"},
		{"a peer in an error of InfiniBand", "ncclRemoteError: A call failed possibly due to a network error. Last error: NET/IB : Got completion from peer 10.0.0.7<39138> with error 12, opcode 0\n", cause.NCCLError, RuleSymptom, "look at 10.0.0.7 first"},
		{"a peer in an error of gloo", raise("RuntimeError: [../gloo/transport/tcp/pair.cc:561] Connection closed by peer [10.0.0.8]:65163", "t.py 3 <module>"), cause.NCCLError, RuleSymptom, "look at 10.0.0.8 first"},
		{"one rank of those in the output", "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n[rank5]: step 3 loss 1.2\n[rank5]:[E ProcessGroupNCCL.cpp:563] [Rank 5] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=15, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600037 milliseconds before timing out.\n", cause.CUDAOOM, RuleMessage, "rank 2 alone ran out"},
		{"a warning of NCCL above its trace", "n1:9:9 [4] NCCL INFO init.cc:1350 -> 2\nn1:9:9 [5] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to fe80::966d:ae03:a2:8cf0%ib1<17943> failed : Software caused connection abort\n", cause.NCCLError, RuleSymptom, "NCCL failed: socketStartConnect: Connect to fe80::966d:ae03:a2:8cf0%ib1"},
		{"a link-local address", "n1:9:9 [5] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to fe80::966d:ae03:a2:8cf0%ib1<17943> failed : Software caused connection abort\n", cause.NCCLError, RuleSymptom, "NCCL_SOCKET_FAMILY=AF_INET"},
		{"a collective timed out", "[rank0]:[E321 02:07:08 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600060 milliseconds before timing out.\n", cause.NCCLTimeout, RuleSymptom, "timed out: ALLREDUCE 1580, after 600 s"},
		{"ranks that waited in a collective", "[E ProcessGroupNCCL.cpp:607] [Rank 4] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, Timeout(ms)=1500)\n[E ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, Timeout(ms)=1500)\n", cause.NCCLTimeout, RuleSymptom, "reported by rank 0, 4: find the rank"},
		{"an event of a GPU", "[ 1.0] NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus.\n", cause.GPUHardware, RuleMessage, "the GPU failed: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus"},
		{"a GPU's error in CUDA", raise("RuntimeError: CUDA error: uncorrectable ECC error encountered", "t.py 3 <module>"), cause.GPUHardware, RuleMessage, "the GPU failed: uncorrectable ECC error"},
		{"the version of an old driver", raise("RuntimeError: The NVIDIA driver on your system is too old (found version 11040).", "t.py 3 <module>"), cause.Driver, RuleMessage, "the driver supports CUDA 11.4"},
		{"a killed worker of a loader", raise("RuntimeError: DataLoader worker (pid 19597) is killed by signal: Killed. ", "t.py 3 <module>"), cause.HostOOM, RuleMessage, "which dmesg shows"},
		{"the job's line in a traceback of rich", "╭─ Traceback (most recent call last) ─╮\n│ /home/u/esim.py:64 in repeat │\n│ ❱ 64 │   draw(x) │\n│ /opt/conda/lib/python3.9/random.py:449 in sample │\n╰─────╯\nValueError: Sample larger than population\n", cause.UserError, RuleError, "esim.py:64: ValueError: Sample"},
		{"an argument of torch.distributed.launch", "t.py: error: unrecognized arguments: --local-rank=3\n", cause.UserError, RuleError, "start the script by torchrun"},
		{"a port that another job has", raise("RuntimeError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: true", "t.py 3 <module>"), cause.PortInUse, RuleMessage, "choose another port"},
		{"the storage fails", raise("OSError: [Errno 5] Input/output error", "t.py 3 <module>", "/v/torch/serialization.py 3 save"), cause.Storage, RuleMessage, "the storage failed: OSError: [Errno 5]"},
		{"a link of a node", "Mar  2 10:00:00 n17 kernel: NVRM: Xid (PCI:0000:06:00): 145, NVLink RLW error\n", cause.GPUHardware, RuleMessage, "drain the node n17"},
		{"FSDP copies no tensor", "/v/torch/distributed/fsdp/_state_dict_utils.py:312: UserWarning: Failed to clone() tensor with name a.weight on rank 1. Error: CUDA out of memory. Tried to allocate 270.00 MiB\n", cause.None, RuleWarning, "the checkpoint may be broken"},
		{"one file without a cause", "zsh: abort  python t.py\n", cause.Unknown, RuleExit, "look at the last lines of the output"},
		{"a time that hooks write after a failure", raise("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB.", "t.py 3 train") + "Total training time: 0:01:02\n", cause.CUDAOOM, RuleMessage, "CUDA out of memory"},
		{"bold text", raise("**ValueError: bad row** 17", "t.py 3 <module>"), cause.UserError, RuleError, "bad row"},
		{"a damaged checkpoint", raise("RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory", "t.py 3 <module>"), cause.UserError, RuleError, "a file cannot be read"},
		{"a damaged file of weights", raise("safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer", "t.py 3 <module>"), cause.UserError, RuleError, "start from an older checkpoint"},
		{"a checkpoint that cannot be made", raise("RuntimeError: File out/c.pt cannot be opened.", "t.py 3 <module>"), cause.Unknown, RuleError, "its folder has to exist"},
		{"NCCL returns an error", "n1:7:9 [0] NCCL INFO init.cc:1350 -> 2\nn1:7:7 [0] NCCL INFO group.cc:96 -> 2\n", cause.NCCLError, RuleSymptom, ""},
		{"NCCL's proxy returns an error", "n1:7:9 [0] proxy.cc:1119 NCCL WARN [Proxy Service 9] Failed to execute operation Connect from rank 9, retcode 6\n", cause.NCCLError, RuleSymptom, ""},
		{"a peer in the last error of NCCL", "ncclInternalError: Internal check failed.\nLast error:\nNet : Connection closed by remote peer node7<43236>\n", cause.NCCLError, RuleMessage, "look at node7 first"},
		{"NCCL finds the GPU full", "n1:7:9 [3] include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'\n\nn1:7:9 [3] include/alloc.h:185 NCCL WARN Failed to CUDA calloc 6291456 bytes\n", cause.CUDAOOM, RuleMessage, "wanted 6 MiB); NCCL found no memory for its own buffers"},
		{"a request that is refused though there is room", raise("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 MiB. GPU 7 has a total capacity of 287.98 GiB of which 203.49 GiB is free. Of the allocated memory 68.63 GiB is allocated by PyTorch, and 14.93 GiB is reserved by PyTorch but unallocated.", "t.py 3 <module>"), cause.CUDAOOM, RuleMessage, "the device is not full, 203 GiB are free"},
		{"a GPU that others fill, by PyTorch 1", raise("RuntimeError: CUDA out of memory. Tried to allocate 12.00 MiB (GPU 0; 23.70 GiB total capacity; 1.10 GiB already allocated; 11.56 MiB free; 1.18 GiB reserved in total by PyTorch)", "t.py 3 <module>"), cause.CUDAOOM, RuleMessage, "12 MiB free of 23.7 GiB"},
		{"a request over a process' limit", raise("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 79.10 GiB of which 70.00 GiB is free. 8.00 GiB allowed; Of the allocated memory 7.90 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated.", "t.py 3 <module>"), cause.CUDAOOM, RuleMessage, "8.0 GiB allowed); "},
		{"a loss that is never finite", raise("FloatingPointError: Loss became infinite or NaN at iteration=0!", "t.py 3 <module>"), cause.Diverged, RuleMessage, "not finite from the first step; nothing has been learned yet"},
		{"a loss that is not finite later", raise("FloatingPointError: Loss became infinite or NaN at iteration=137!", "t.py 3 <module>"), cause.Diverged, RuleMessage, "if the first step's are not"},
		{"a loss that is not finite after steps", stepLines(1, 30) + raise("FloatingPointError: Loss became infinite or NaN!", "t.py 3 <module>"), cause.Diverged, RuleMessage, "finite: lower the learning rate"},
		{"anomaly detection", stepLines(1, 30) + raise("RuntimeError: Function 'AddmmBackward0' returned nan values in its 2th output.", "t.py 3 <module>"), cause.Diverged, RuleMessage, "turn detect_anomaly off"},
		{"a libcuda for other GPUs", raise("RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 804: forward compatibility was attempted on non supported HW", "t.py 3 <module>"), cause.Driver, RuleMessage, "remove it from LD_LIBRARY_PATH"},
		{"no GPU", raise("RuntimeError: No CUDA GPUs are available", "t.py 3 <module>"), cause.Driver, RuleMessage, "the job sees no GPU; look at nvidia-smi"},
		{"a build without CUDA", raise("AssertionError: Torch not compiled with CUDA enabled", "t.py 3 <module>"), cause.Driver, RuleMessage, "built without CUDA"},
		{"a node without its fabric manager", raise("RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized", "t.py 3 <module>"), cause.Driver, RuleMessage, "start nvidia-fabricmanager"},
		{"a kernel that crashes", raise("RuntimeError: CUDA error: unspecified launch failure", "t.py 3 <module>"), cause.Unknown, RuleError, "a GPU kernel crashed: RuntimeError: CUDA error: unspecified launch failure; run once with CUDA_LAUNCH_BLOCKING=1"},
		{"a library of CUDA", raise("RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED", "t.py 3 <module>"), cause.Unknown, RuleError, "a library of CUDA failed"},
		{"a worker of the loader that crashes", "ERROR: Unexpected segmentation fault encountered in worker.\n" + raise("RuntimeError: DataLoader worker (pid(s) 7) exited unexpectedly", "t.py 3 <module>"), cause.Segfault, RuleMessage, "num_workers=0"},
		{"a GPU of a rank", "[Rank 1] NCCL watchdog thread terminated with exception: CUDA error: uncorrectable ECC error encountered\n", cause.GPUHardware, RuleMessage, "take the GPU of rank 1 out of service"},
		{"a GPU with its number", "Internal: failed initializing StreamExecutor for CUDA device ordinal 0: Internal: failed call to cuDevicePrimaryCtxRetain: CUDA_ERROR_ECC_UNCORRECTABLE\n", cause.GPUHardware, RuleMessage, "take cuda:0 out of service"},
		{"an engine that wants more than is free", raise("ValueError: Free memory on device (31.44/47.38 GiB) on startup is less than desired GPU memory utilization (0.95, 45.01 GiB).", "t.py 3 <module>"), cause.GPUOccupied, RuleMessage, "gpu_memory_utilization"},
		{"a GPU that nvidia-smi cannot reach", "Unable to determine the device handle for GPU0000:03:00.0: Unknown Error\n", cause.GPUHardware, RuleMessage, ""},
		{"errno after an error of CUDA", "CUDA Error: uncorrectable ECC error encountered: Cannot allocate memory\n", cause.GPUHardware, RuleMessage, "the GPU failed"},
		{"a bus error of a loader's worker, on two lines", raise("RuntimeError: DataLoader worker (pid 7) is killed by signal: ", "t.py 3 <module>") + "Bus error. It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit.\n", cause.SharedMemory, RuleMessage, "enlarge /dev/shm"},
		{"a package that was compiled for another PyTorch", raise("ImportError: /v/flash_attn_2_cuda.so: undefined symbol: _ZN3c104cuda9SetDeviceEi", "t.py 3 <module>"), cause.UserError, RuleError, "built for another version of PyTorch"},
		{"a file that is copied to a full disk", raise("OSError: [Errno 28] No space left on device: '/home/u/run/model.safetensors' -> '/home/u/.local/share/wandb/artifacts/staging/tmp0'", "t.py 3 <module>"), cause.DiskFull, RuleMessage, "the file system of /home/u/.local/share/wandb/artifacts/staging/tmp0, or point the job elsewhere (WANDB_DATA_DIR"},
		{"a peer over loopback", "n1:7:9 [0] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to 127.0.0.1<43236> failed : Connection refused\n", cause.NCCLError, RuleSymptom, "NCCL chose the wrong interface"},
		{"a compiler that fails", raise("torch._inductor.exc.InductorError: CalledProcessError: Command '['/usr/bin/gcc', '/tmp/t/main.c', '-lcuda']' returned non-zero exit status 1.", "t.py 3 <module>"), cause.UserError, RuleSymptom, "a compiler failed: run its command"},
		{"a name that another package lacks", raise("AttributeError: module 'PIL.Image' has no attribute 'ExifTags'", "t.py 3 <module>", "/v/site-packages/datasets/image.py 189 decode", "/v/site-packages/PIL/Image.py 76 __getattr__"), cause.UserError, RuleError, "two installed packages do not match"},
		{"a name that the job's own module lacks", raise("AttributeError: module 'mine' has no attribute 'load'", "t.py 3 <module>"), cause.UserError, RuleError, "look at t.py:3"},
		{"a label out of range", "Loss.cu:257: nll_loss_forward: block: [0,0,0], thread: [4,0,0] Assertion `t >= 0 && t < n_classes` failed.\n" + raise("RuntimeError: CUDA error: device-side assert triggered", "t.py 3 <module>"), cause.DeviceAssert, RuleMessage, "a label is none of the classes"},
		{"a token out of range", "Indexing.cu:699: indexSelect: block: [0,0,0], thread: [4,0,0] Assertion `srcIndex < srcSelectDimSize` failed.\n" + raise("RuntimeError: CUDA error: device-side assert triggered", "t.py 3 <module>"), cause.DeviceAssert, RuleMessage, "compare token ids"},
		{"a GPU that another process fills", raise("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 31.73 GiB of which 1.00 MiB is free. Process 12909 has 21.20 GiB memory in use. Including non-PyTorch memory, this process has 10.40 GiB memory in use.", "unet.py 252 forward"), cause.GPUOccupied, RuleMessage, "other processes hold 21.2 GiB of cuda:0"},
		{"a run of gpurun that was rescued", "gpurun: attempt 0: micro_batch_size=8\n" + leftByOOM + "gpurun: attempt 0: CUDA out of memory in backward → micro batch 8→4\ngpurun: attempt 1: micro batch 8→4\nepoch 0\ngpurun: summary: trained after 2 attempts in 5.24s\ngpurun:   attempt 0, 1.67s: CUDA out of memory in backward on rank 0 (wanted 2.0 GiB) → micro batch 8→4\ngpurun:   attempt 1, 3.58s: trained\n", cause.None, RuleWarning, ""},
		{"a run of gpurun that ended after steps done again", "gpurun: rank 0 ran out of memory in backward at step 0 (wanted 16 MiB); the step was done again in 2 parts (0.06 s)\nOpenBLAS: malloc failed in gemm_driver\ngpurun: summary: no plan left after 1 attempt in 4.09s\ngpurun:   attempt 0, 4.09s: CPU out of memory on rank 0; memory ran out in 1 step, done again in place in 2 to 512 parts, which took 1.19 s\n", cause.HostOOM, RuleMessage, ""},
		{"too many open files", raise("OSError: [Errno 24] Too many open files: 'a.npy'", "t.py 3 <module>"), cause.Unknown, RuleError, "too many files are open: OSError"},
		{"a hook for exceptions that fails, and no more", stepLines(1, 9) + "Error in sys.excepthook:\n" + leftByValue[:strings.Index(leftByValue, "ValueError")], cause.Unknown, RuleSymptom, "an exception ended the job, and its text is not here"},
		{"a hook for exceptions that fails", "Error in sys.excepthook:\n" + raise("KeyError: 'run'", "/v/tracker/hook.py 3 hook") + "\nOriginal exception was:\n" + leftByValue, cause.UserError, RuleError, "bad row 17"},
		{"Ctrl-C, which threads and children see as a pipe that ends", "Thread HandlerThread:\n" + raise("EOFError", "/v/internal_util.py 55 run", "/usr/lib/python3.9/multiprocessing/connection.py 383 _recv") + "Exception in thread Thread-15:\n" + raise("Exception: the backend has shut down", "/usr/lib/python3.9/threading.py 926 _bootstrap_inner") + raise("KeyboardInterrupt", "<string> 1 <module>", "/usr/lib/python3.9/multiprocessing/spawn.py 105 spawn_main", "/usr/lib/python3.9/threading.py 1307 _shutdown"), cause.Preempted, RuleSymptom, "interrupted from outside"},
		{"a child of the job that fails before Ctrl-C", "Process SpawnProcess-1:\n" + raise("ValueError: bad row 17", "/usr/lib/python3.9/multiprocessing/process.py 315 _bootstrap", "t.py 3 work") + raise("KeyboardInterrupt", "t.py 9 <module>"), cause.UserError, RuleError, "bad row 17"},
		{"a spawned process that is cut off", "| WARNING: ran out of memory with exception: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.93 GiB total capacity; 7.20 GiB already allocated; 17.56 MiB free);\n Skipping batch\n" + raise("Exception: ", "t.py 9 <module>", "t.py 298 main", "/v/torch/multiprocessing/spawn.py 114 join") + "\n-- Process 3 terminated with the following error:\nTraceback (most recent call last):\n", cause.CUDAOOM, RuleUnrecovered, "CUDA out of memory (wanted 20 MiB, 18 MiB free of 7.9 GiB); the job handled the error itself, and failed after all"},
		{"a watchdog that hangs", "[E205 18:11:06 ProcessGroupNCCL.cpp:1870] [PG ID 1 Rank 4] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives.\n", cause.NCCLTimeout, RuleSymptom, ""},
		{"an actor of Ray that is gone", raise("ray.exceptions.ActorUnavailableError: The actor 7 is unavailable: Socket closed", "t.py 3 <module>"), cause.Unknown, RuleSymptom, ""},
		{"Python cannot read the script", "  File \"t.py\", line 3\n    x = = 2\n        ^\nSyntaxError: invalid syntax\nbye\n", cause.UserError, RuleError, "look at t.py:3"},
		{"a kill behind a bar", "  6%|# | 3787/62565 [04:47<1:10:53, 13.82it/s]Killed\n", cause.Unknown, RuleSymptom, ""},
		{"a program that catches Ctrl-C", stepLines(1, 9) + "Training interrupted by user\n", cause.Preempted, RuleSymptom, "interrupted from outside"},
		{"a loss in quotes", "{\"epoch\": 73, \"train_loss\": \"nan\"}\n", cause.Diverged, RuleWarning, ""},
		{"a choice that autotuning drops", "Runtime error during autotuning:\nNo valid triton configs. OutOfResources: out of resource: shared memory, Required: 131072, Hardware limit: 101376.\nIgnoring this choice.\n", cause.None, RuleNothing, ""},
		{"a quota of TensorFlow's files", "tensorflow.python.framework.errors_impl.ResourceExhaustedError: disk quota exceeded [Op:SaveV2]\n", cause.DiskFull, RuleMessage, ""},
		{"a file of TensorFlow", raise("ResourceExhaustedError: ./model/m-49.tempstate57", "t.py 3 save"), cause.DiskFull, RuleMessage, ""},
		{"an output that is cut", leftByOOM[:strings.Index(leftByOOM, "torch.")], cause.Unknown, RuleSymptom, "ends before the exception is named"},
		{"an output that is cut after a warning", "/v/joblib/_multiprocessing_helpers.py:46: UserWarning: [Errno 28] No space left on device.  joblib will operate in serial mode\n" + leftByValue[:strings.Index(leftByValue, "ValueError")], cause.SharedMemory, RuleMessage, ""},
		{"a recovery that fails", "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB.\n| WARNING: ran out of memory, skipping batch\n" + leftByValue, cause.CUDAOOM, RuleUnrecovered, "CUDA out of memory"},
		{"a recovery, and a failure later", "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB.\n| WARNING: ran out of memory, skipping batch\n" + stepLines(1, 9) + leftByValue, cause.UserError, RuleError, "ValueError"},
		{"a spawned process, without its traceback", raise("Exception: ", "t.py 3 <module>", "/v/torch/multiprocessing/spawn.py 114 join") + "\n-- Process 3 terminated with the following error:\n", cause.Unknown, RuleSymptom, ""},
		{"Apple", raise("RuntimeError: MPS backend out of memory (MPS allocated: 17.99 GB, max allowed: 18.13 GB). Tried to allocate 50.00 MB on private pool.", "t.py 3 <module>"), cause.CUDAOOM, RuleMessage, "MPS (Apple) out of memory"},
		{"AMD", raise("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 1.00 GiB.", "t.py 3 <module>"), cause.CUDAOOM, RuleMessage, "HIP (AMD) out of memory"},
		{"JAX", raise("jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes.", "t.py 3 <module>"), cause.CUDAOOM, RuleMessage, "device (JAX) out of memory"},
		{"TensorFlow", raise("tensorflow.python.framework.errors_impl.ResourceExhaustedError: Graph execution error:", "t.py 3 <module>"), cause.CUDAOOM, RuleMessage, "GPU (TensorFlow) out of memory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := diagnoseText(c.log, nil)
			if d.Cause != c.cause || !slices.Contains(d.Rules, c.rule) {
				t.Errorf("%s by %v, want %s by %s", d.Cause, d.Rules, c.cause, c.rule)
			}
			if said := d.Sentence() + "; " + d.Advice; !strings.Contains(said, c.sentence) {
				t.Errorf("%q, want %q", said, c.sentence)
			}
		})
	}
}

// TestRulesAreExplained: every rule has a sentence.
func TestRulesAreExplained(t *testing.T) {
	for _, r := range []Rule{
		RuleMessage, RuleError, RuleSymptom, RuleWarning, RuleExit, RuleCounter, RuleDriver, RuleNothing, RuleCrash,
		RuleLastStart, RuleOutlived, RuleIgnored, RuleConsequence, RuleSignal, RuleRoot, RuleUnrecovered,
	} {
		if r.Words() == "" {
			t.Errorf("%s is not explained", r)
		}
	}
}

// TestLoadingDataIsNoForward: a data set that computes while it loads is in no phase of the
// training.
func TestLoadingDataIsNoForward(t *testing.T) {
	log := raise("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB.", "t.py 9 <module>", "data.py 3 __getitem__", "/v/torch/nn/modules/module.py 3 _call_impl")
	if d := diagnoseText(log, nil); d.Phase != cause.NoPhase {
		t.Errorf("phase %s, want none", d.Phase)
	}
}
