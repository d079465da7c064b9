package strategy

import (
	"testing"

	"github.com/gpurun/gpurun/strategy/cause"
)

// forms are the same failures in the forms of loggers, terminals, launchers and older versions.
// Names, paths and numbers are made up.
var forms = []struct {
	name  string
	log   string
	cause cause.Code
	fatal bool
	phase cause.Phase
}{
	{"a logger puts a prefix before each line", "2030-05-01 10:00:00.123 [12/train/7 (pid 9)] [0d1e] Traceback (most recent call last):\n2030-05-01 10:00:00.123 [12/train/7 (pid 9)] [0d1e]   File \"/v/torch/serialization.py\", line 604, in _save\n2030-05-01 10:00:00.123 [12/train/7 (pid 9)] [0d1e]     zip_file.write_record(name, p, n)\n2030-05-01 10:00:00.124 [12/train/7 (pid 9)] [0d1e] OSError: [Errno 28] No space left on device\n", cause.DiskFull, true, cause.Save},
	{"docker compose, an error of the job's own", "trainer-1  | Traceback (most recent call last):\ntrainer-1  |   File \"/app/t.py\", line 2, in main\ntrainer-1  |     cfg['a']\ntrainer-1  | KeyError: 'a'\ntrainer-1 exited with code 1\n", cause.UserError, true, ""},
	{"a container's runtime writes the time, and the rank follows", "2030-06-11T08:12:44.114539162Z stderr F [rank5]: Traceback (most recent call last):\n2030-06-11T08:12:44.114539163Z stderr F [rank5]:   File \"/v/torch/nn/modules/module.py\", line 1553, in _call_impl\n2030-06-11T08:12:44.114539164Z stderr F [rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.\n", cause.CUDAOOM, true, cause.Forward},
	{"a prefix, and the header is cut off", "2030-08-12 19:05:26   File \"/v/torch/autograd/graph.py\", line 841, in _engine_run_backward\n2030-08-12 19:05:26     return run_backward(x)\n2030-08-12 19:05:27 torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.\n", cause.CUDAOOM, true, cause.Backward},
	{"rich breaks the names of functions", "│ /v/site-packages/deepspeed/runtime/engine.py:330    │\n│ in __init__                                          │\n│   329 │   if has_optimizer:                          │\n│ ❱ 330 │   │   self._configure_optimizer(o, p)      │\n│ e-packages/deepspeed/runtime/zero/stage_3.py:611 in │\n│ initialize_optimizer_states                          │\n╰──────────────────────╯\nOutOfMemoryError: CUDA out of memory.\n", cause.CUDAOOM, true, cause.Load},
	{"a terminal breaks the frames, and what follows lacks the rank", "[rank1]:   File \"/v/python3.11/site-packages/torch/autograd/gra\nph.py\", line 744, in _engine_run_backward\n[rank1]:     x()\n[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.\n", cause.CUDAOOM, true, cause.Backward},
	{"Colab links its frames", "OutOfMemoryError                          Traceback (most recent call last)\n[/usr/local/lib/python3.11/dist-packages/x/save.py](https://localhost:8080/#) in save_model(m, d)\n--> 177             w.max()\n\nOutOfMemoryError: CUDA out of memory. Tried to allocate 280.00 MiB.\n", cause.CUDAOOM, true, cause.Save},
	{"bold", "labels\n**Killed**\n", cause.Unknown, true, ""},
	{"a bare MemoryError", "data = np.zeros(shape)\nMemoryError\n", cause.HostOOM, true, ""},

	{"TensorFlow names the node below", "W op_kernel.cc:993] Resource exhausted: OOM when allocating tensor with shape[8,254]\n\t [[Node: gradients/loss_grad/Log = Log[T=DT_FLOAT](x)]]\n", cause.CUDAOOM, true, cause.Backward},
	{"TensorFlow copies to a full device", "InternalError: Failed copying input tensor from CPU:0 to GPU:0 in order to run _EagerConst: Dst tensor is not initialized.\n", cause.CUDAOOM, true, ""},
	{"Chainer leaves the class out", "Exception in main training loop: Out of memory allocating 25,600,000 bytes (allocated so far: 3,635,267,072 bytes).\nTraceback (most recent call last):\n", cause.CUDAOOM, true, ""},
	{"a wrapped message of XLA", "E local_client.cc:672] Execution of replica 0 failed: Resource exhausted: Out \nof memory while trying to allocate 5520758552 bytes.\n", cause.CUDAOOM, true, ""},
	{"XLA tries a convolution, wrapped", "E cuda_driver.cc:828] failed to allocate 528.00M (553648128 bytes) from \ndevice: CUDA_ERROR_OUT_OF_MEMORY: out of memory\nE cudnn_conv_algorithm_picker.cc:525] Resource exhausted: Failed to allocate request for 528.00MiB (553648128B) on device ordinal 0\n", cause.None, false, ""},
	{"a warning tells of it, and that is all", "WARNING:root:CUDA out of memory. Tried to allocate 1.72 GiB (GPU 0; 10.76 GiB total capacity; 4.01 GiB already allocated; 356.00 MiB free; 5.54 GiB cached)\n", cause.None, false, ""},
	{"AutoBatch falls back", "AutoBatch: WARNING ⚠️ error detected: CUDA out of memory. Tried to allocate 1.00 GiB,  using default batch-size 16.\n", cause.None, false, ""},
	{"FSDP warns that a tensor was not copied", "/v/torch/distributed/fsdp/_state_dict_utils.py:312: UserWarning: Failed to clone() tensor with name a.weight on rank 1. Error: CUDA out of memory. Tried to allocate 270.00 MiB (GPU 1; 79.35 GiB total capacity)\n", cause.None, false, ""},

	{"a semaphore is a file of shared memory", "Traceback (most recent call last):\n  File \"/usr/lib/python3.9/multiprocessing/synchronize.py\", line 57, in __init__\n    sl = SemLock(\nOSError: [Errno 28] No space left on device\n", cause.SharedMemory, true, ""},
	{"Ray counts what it killed", "(raylet) node_manager.cc:3277: 2 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons at node\n", cause.HostOOM, true, ""},
	{"Ray killed none, and a worker crashed", "(raylet) node_manager.cc:3277: 0 Workers (tasks / actors) killed due to memory pressure (OOM), 2 Workers crashed due to other reasons at node\n(raylet) A worker died or was killed while executing a task by an unexpected system error. To troubleshoot the problem, check the logs for the dead worker.\n", cause.Unknown, true, ""},
	{"an IDE reports the signal", "epoch 3 loss 0.12\nProcess finished with exit code 139 (interrupted by signal 11: SIGSEGV)\n", cause.Segfault, true, ""},
	{"Composer reports the segmentation fault", "ERROR:composer.cli.launcher:Rank 0 crashed with exit code -11.\n", cause.Segfault, true, ""},
	{"Composer reports a kill", "Global rank 0 (PID 208) exited with code -9\n", cause.Unknown, true, ""},
	{"an access violation on Windows", "subprocess.CalledProcessError: Command '['C:\\\\py.exe', 'D:/train.py']' returned non-zero exit status 3221225477.\n", cause.Segfault, true, ""},
	{"SkyPilot recovers", "(sky-de99-a, pid=7341) I 12-10 21:39:39 controller.py:118] Cluster is preempted (status: INIT). Recovering...\n", cause.Preempted, true, ""},
	{"Ray aborts", "(TaskRunner pid=2915) [2030-07-06 07:14:27,052 C 2915 2915] task_receiver.cc:219:  Check failed: objects_valid \n", cause.Unknown, true, ""},
	{"docker compose reports the segmentation fault", "trainer-1 exited with code 139\n", cause.Segfault, true, ""},
	{"vLLM's parent names no reason", "(APIServer pid=7)     raise RuntimeError(\"Engine core initialization failed. \"\n(APIServer pid=7) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n", cause.Unknown, true, ""},
	{"the source line alone says that it saves", "Traceback (most recent call last):\n  File \"/a/train.py\", line 9, in after_epoch\n    torch.save(state, path)\nOSError: [Errno 28] No space left on device\n", cause.DiskFull, true, cause.Save},
	{"a terminal broke the frames in three", "                    Traceback (most recent call last):                        \n                      File                                                    \n                    \"/v/lib/python3.12/site-packages/torch/amp/grad_sca       \n                    ler.py\", line 457, in step                                \n                        retval = self._maybe_opt_step(optimizer)              \n                    torch.OutOfMemoryError: CUDA out of memory. Tried to      \n                    allocate 130.00 MiB.                                      \n", cause.CUDAOOM, true, cause.Optimizer},
	{"Colab, without the header", "[/v/transformers/trainer.py](https://localhost:8080/#) in evaluation_loop(self, dataloader)\n   3204\n-> 3205             preds = concat(preds, logits)\n\nOutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n", cause.CUDAOOM, true, cause.Eval},
	{"metrics of an evaluation", "Traceback (most recent call last):\n  File \"/a/score.py\", line 3, in eval_all\n    d = distance(a, b)\n  File \"/a/geometry.py\", line 5, in distance\n    return torch.bmm(x, y)\nRuntimeError: CUDA out of memory. Tried to allocate 4.69 GiB\n", cause.CUDAOOM, true, cause.Eval},
	{"nnU-Net validates", "Traceback (most recent call last):\n  File \"/a/trainer.py\", line 3, in perform_actual_validation\n    p = net(x)\n  File \"/v/torch/nn/modules/module.py\", line 1501, in _call_impl\n    return forward_call(*args, **kwargs)\ntorch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB\n", cause.CUDAOOM, true, cause.Eval},
	{"PPO evaluates actions in its training step", "Traceback (most recent call last):\n  File \"/a/ppo.py\", line 3, in evaluate_actions\n    p = net(x)\n  File \"/v/torch/nn/modules/module.py\", line 1501, in _call_impl\n    return forward_call(*args, **kwargs)\ntorch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB\n", cause.CUDAOOM, true, cause.Forward},
	{"MMDetection computes a loss", "Traceback (most recent call last):\n  File \"/v/lib/python3.8/site-packages/mmdet/models/dense_heads/head.py\", line 700, in loss_by_feat\n    torch.cat(masks, 0)\nRuntimeError: CUDA out of memory. Tried to allocate 1.12 GiB\n", cause.CUDAOOM, true, cause.Forward},
	{"a terminal breaks the line of an assertion", "/p/aten/src/ATen/native/cuda/Indexing.cu:1422: indexSelectLargeIndex: block: [32,0,0], thread: [3,0,0] Assertion `srcIndex < srcSelectDimSize` \nfailed.          \n", cause.DeviceAssert, true, ""},
	{"a shell reports an abort", "step 7 loss 0.1\nAborted (core dumped)\n", cause.Unknown, true, ""},
	{"an abort after a reason", "CUDA error: no kernel image is available for execution on the device\nAborted (core dumped)\n", cause.Driver, true, ""},
	{"an abort after a warning", "node1:7:9 [0] misc/socket.cc:5 NCCL WARN socketStartConnect: Connect to 10.0.0.1<5> failed : Software caused connection abort\nAborted (core dumped)\n", cause.NCCLError, true, ""},
	{"an end after an error of the job's own", "trainer-1  | Traceback (most recent call last):\ntrainer-1  |   File \"t.py\", line 1, in <module>\ntrainer-1  | KeyError: 1\nmake: *** [Makefile:3: train] Error 1\n", cause.UserError, true, ""},
	{"Slurm reports an exit", "srun: error: node3: task 5: Exited with exit code 1\n", cause.Unknown, true, ""},
	{"MPI reports a kill", "mpirun noticed that process rank 3 with PID 0 on node n1 exited on signal 9 (Killed).\n", cause.Unknown, true, ""},
	{"zsh reports a crash", "zsh: segmentation fault  python train.py\n", cause.Segfault, true, ""},
	{"the traceback is cut off", "loading the dataset\n[rank1]: ValueError: Attempting to unscale FP16 gradients.\n\n", cause.UserError, true, ""},
	{"an exception that others follow", "ValueError: bad line 7, left out\nstep 7 loss 0.1\n", cause.None, false, ""},
	{"an exception that a hint follows", "ValueError: bad line 7, left out\nif CUDA out of memory occurs, lower the batch size\n", cause.None, false, ""},
	{"kubectl exec", "command terminated with exit code 137\n", cause.Unknown, true, ""},
	{"docker compose reports the kill", "trainer-1 exited with code 137\n", cause.Unknown, true, ""},

	{"ROCm's assertion", "/pytorch/aten/src/ATen/native/hip/Indexing.hip:1292: indexSelectLargeIndex: Device-side assertion `srcIndex < srcSelectDimSize' failed.\n", cause.DeviceAssert, true, ""},
	{"the driver finds the GPU gone, over three lines", "[ 3.1] NVRM: The NVIDIA GPU 0000:b3:00.0\n  NVRM: (PCI ID: 10de:26b5) installed in this system has\n  NVRM: fallen off the bus and is not responding to commands.\n", cause.GPUHardware, true, ""},
	{"a peer's memory", "RuntimeError: CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error\n", cause.GPUHardware, true, ""},
	{"a read of a broken disk, old PyTorch", "Traceback (most recent call last):\n  File \"/v/torch/serialization.py\", line 297, in _save\n    s._write_file(f)\nRuntimeError: write(): fd 29 failed with Input/output error\n", cause.Storage, true, cause.Save},

	{"NCCL finds no port, which is not the rendezvous'", "n:1:1 [0] include/socket.h:333 NCCL WARN Call to bind failed : Address already in use\nTraceback (most recent call last):\n  File \"/v/torch/distributed/distributed_c10d.py\", line 902, in all_reduce\n    work = group.allreduce([tensor], opts)\nRuntimeError: NCCL error in: x.cpp:264, unhandled system error\n", cause.NCCLError, true, cause.Collective},
	{"a collective within a forward", "Traceback (most recent call last):\n  File \"ops.py\", line 53, in forward\n    dist.all_gather(a, b)\n  File \"/v/torch/distributed/distributed_c10d.py\", line 2070, in all_gather\n    work = group.allgather([a], [b])\nRuntimeError: NCCL error in: x.cpp:1191, unhandled system error, NCCL version 2.10.3\n", cause.NCCLError, true, cause.Collective},
	{"a dead peer, after words that fit a timeout too", "[rank5]:[E ProcessGroupNCCL.cpp:681] [Rank 5] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.\n[rank5]:[E ProcessGroupNCCL.cpp:1895] [Rank 5] Process group watchdog thread terminated with exception: NCCL error: remote process exited or there was a network error, NCCL version 2.21.5\n", cause.NCCLError, true, ""},
	{"those words alone", "[E ProcessGroupNCCL.cpp:456] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.\n", cause.NCCLTimeout, true, cause.Collective},
	{"NVIDIA's tests of NCCL", "Test NCCL failure common.cu:958 'internal error - please report this issue to the NCCL developers / '\n", cause.NCCLError, true, ""},
	{"the store is gone", "[rank2]:[W TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=76, addr=[localhost]:60902, remote=[localhost]:29500): Connection reset by peer\n", cause.Unknown, true, ""},

	{"Triton asks for too much", "Traceback (most recent call last):\n  File \"/v/triton/compiler/compiler.py\", line 390, in _init_handles\n    raise OutOfResources(self.metadata.shared, max_shared, \"shared memory\")\ntriton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 163840, Hardware limit: 101376. Reducing block sizes or `num_stages` may help.\n", cause.KernelResources, true, ""},
	{"a kernel reads what is not its own", "Traceback (most recent call last):\n  File \"t.py\", line 12, in <module>\n    x.item()\nRuntimeError: CUDA error: an illegal memory access was encountered\n", cause.IllegalAccess, true, ""},
	{"the store's port is taken", "Traceback (most recent call last):\n  File \"t.py\", line 3, in <module>\n    dist.init_process_group()\ntorch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use\n", cause.PortInUse, true, ""},
	{"elastic's table of an exit with 1", "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n====\nt.py FAILED\nRoot Cause (first observed failure):\n[0]:\n  rank      : 1 (local_rank: 1)\n  exitcode  : 1 (pid: 81234)\n  error_file: <N/A>\n", cause.UserError, true, ""},
	{"elastic's table of an abort", "  exitcode  : -6 (pid: 3437)\n  error_file: <N/A>\n  traceback : Signal 6 (SIGABRT) received by PID 3437\n", cause.Unknown, true, ""},
	{"elastic's table of an illegal instruction", "  exitcode  : -4 (pid: 3437)\n  error_file: <N/A>\n  traceback : Signal 4 (SIGILL) received by PID 3437\n", cause.Segfault, true, ""},
	{"elastic passes a hangup on", "WARNING:torch.distributed.elastic.multiprocessing.api:Sending process 102241 closing signal SIGHUP\n", cause.Preempted, true, ""},
	{"submitit is preempted", "submitit WARNING (2030-07-12 04:18:45,881) - Caught signal SIGHUP on node3: this job is preempted.\nsubmitit INFO (2030-07-12 04:18:45,913) - Exiting gracefully after preemption/timeout.\n", cause.Preempted, true, ""},
	{"an interrupt arrives anywhere", "^CTraceback (most recent call last):\n  File \"t.py\", line 70, in main\n    loss.backward()\n  File \"/v/torch/_tensor.py\", line 487, in backward\n    torch.autograd.backward(\nKeyboardInterrupt\n", cause.Preempted, true, ""},
	{"apex halves the scale without end", "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 4.1e-202\n", cause.Diverged, false, ""},
	{"apex finds its scale", "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0\n", cause.None, false, ""},
}

func TestForms(t *testing.T) {
	for _, l := range forms {
		t.Run(l.name, func(t *testing.T) {
			d := Diagnose(EvidenceFromLog(cause.Scan("log", l.log), nil))
			phase := l.phase
			if phase == "" {
				phase = cause.NoPhase
			}
			if d.Cause != l.cause || d.Fatal != l.fatal || d.Phase != phase {
				t.Errorf("cause %s, fatal %v, phase %s; want %s, %v, %s", d.Cause, d.Fatal, d.Phase, l.cause, l.fatal, phase)
			}
		})
	}
}
