package strategy

import (
	"testing"

	"github.com/gpurun/gpurun/strategy/cause"
)

// logs are excerpts in the form of public issues and job files, each with its meaning. Names,
// paths and numbers are made up.
var logs = []struct {
	name  string
	log   string
	cause cause.Code
	fatal bool
	phase cause.Phase
}{
	{"cuBLAS", "Traceback (most recent call last):\n  File \"t.py\", line 5, in <module>\n    loss.backward()\n  File \"/v/torch/_tensor.py\", line 363, in backward\n    torch.autograd.backward(self, gradient)\nRuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`\n", cause.CUDAOOM, true, cause.Backward},
	{"cuDNN", "RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED\n", cause.CUDAOOM, true, ""},
	{"bitsandbytes", "Error out of memory at line 380 in file /home/tim/git/bitsandbytes/csrc/pythonInterface.c\n", cause.CUDAOOM, true, ""},
	{"NCCL has no memory left for its buffers", "node1:77:91 [0] include/alloc.h:205 NCCL WARN Cuda failure 2 'out of memory'\nTraceback (most recent call last):\n  File \"t.py\", line 5, in <module>\n    dist.barrier()\ntorch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:219, unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.18.1\n", cause.CUDAOOM, true, ""},
	{"NCCL without WARN lines", "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:219, unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.18.1\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 'out of memory'\n", cause.CUDAOOM, true, ""},
	{"NCCL system error", "Traceback (most recent call last):\n  File \"t.py\", line 5, in <module>\n    dist.barrier()\n  File \"/v/torch/distributed/distributed_c10d.py\", line 3145, in barrier\n    work = default_pg.barrier(opts=opts)\nRuntimeError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1191, unhandled system error, NCCL version 2.10.3\nncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.\n", cause.NCCLError, true, cause.Collective},
	{"JAX on a GPU", "Traceback (most recent call last):\n  File \"train.py\", line 120, in <module>\n    state, m = p_train_step(state, batch)\njaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes.\n", cause.CUDAOOM, true, ""},
	{"XLA's allocator warns and goes on", "2024-01-01 00:00:00.0: W external/xla/xla/service/gpu/nvptx.cc:1] x\n2024-01-01 00:00:00.0: E external/xla/xla/stream_executor/cuda/cuda_driver.cc:628] failed to allocate 38.20GiB (41016832000 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory\nstep 1 loss 2.0\n", cause.None, false, ""},
	{"TensorFlow's allocator says itself that it is no failure", "W tensorflow/core/common_runtime/bfc_allocator.cc:290] Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.20GiB with freed_by_count=0. The caller indicates that this is not a failure, but this may mean that there could be performance gains if more memory were available.\n", cause.None, false, ""},
	{"TensorFlow fails", "Traceback (most recent call last):\n  File \"/v/keras/src/trainers/trainer.py\", line 122, in fit\n    x()\ntensorflow.python.framework.errors_impl.ResourceExhaustedError: Graph execution error:\n", cause.CUDAOOM, true, ""},
	{"CuPy", "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8,589,934,592 bytes (allocated so far: 2,147,483,648 bytes).\n", cause.CUDAOOM, true, ""},
	{"vLLM's cache", "ERROR 01-02 core.py:390] ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.\n", cause.CUDAOOM, true, cause.Load},
	{"vLLM's trial run", "ERROR 01-02 core.py:390] RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try lowering `max_num_seqs` or `gpu_memory_utilization` when initializing the engine.\n", cause.CUDAOOM, true, cause.Eval},
	{"ROCm", "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 15.98 GiB of which 630.00 MiB is free.\n", cause.CUDAOOM, true, ""},
	{"MPS", "RuntimeError: MPS backend out of memory (MPS allocated: 17.99 GB, other allocations: 220.89 MB, max allowed: 18.13 GB). Tried to allocate 50.00 MB on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations (may cause system failure).\n", cause.CUDAOOM, true, ""},
	{"evaluation", "Traceback (most recent call last):\n  File \"t.py\", line 5, in <module>\n    trainer.train()\n  File \"/v/transformers/trainer.py\", line 2350, in _maybe_log_save_evaluate\n    metrics = self.evaluate(ignore_keys=keys)\n  File \"/v/transformers/trainer.py\", line 3365, in evaluate\n    output = eval_loop(\n  File \"/v/transformers/trainer.py\", line 3600, in evaluation_loop\n    preds = nested_concat(preds, logits)\n  File \"/v/transformers/trainer_pt_utils.py\", line 130, in torch_pad_and_concatenate\n    return torch.cat((tensor1, tensor2), dim=0)\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 10.00 GiB.\n", cause.CUDAOOM, true, cause.Eval},
	{"saving gathers ZeRO-3 weights", "Traceback (most recent call last):\n  File \"/v/transformers/trainer.py\", line 2896, in _save_checkpoint\n    self.save_model(output_dir)\n  File \"/v/deepspeed/runtime/engine.py\", line 3300, in _zero3_consolidated_16bit_state_dict\n    get_layer_state_dict(self.module)\ntorch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n", cause.CUDAOOM, true, cause.Save},
	{"DeepSpeed sets up its optimizer", "Traceback (most recent call last):\n  File \"t.py\", line 5, in <module>\n    engine, _, _, _ = deepspeed.initialize(model=m)\n  File \"/v/deepspeed/__init__.py\", line 171, in initialize\n    engine = DeepSpeedEngine(args=args)\n  File \"/v/deepspeed/runtime/zero/stage_1_and_2.py\", line 620, in initialize_optimizer_states\n    self.optimizer.step()\n  File \"/v/torch/optim/adamw.py\", line 171, in step\n    adamw(\ntorch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n", cause.CUDAOOM, true, cause.Load},
	{"an optimizer with a fused kernel, offloaded", "Traceback (most recent call last):\n  File \"/v/deepspeed/ops/adam/cpu_adam.py\", line 150, in step\n    state['exp_avg'] = torch.zeros_like(p.data, device=device)\nRuntimeError: [enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes. Error code 12 (Cannot allocate memory)\n", cause.HostOOM, true, cause.Optimizer},
	{"DDP moves the model", "Traceback (most recent call last):\n  File \"t.py\", line 5, in <module>\n    model = model.cuda(local_rank)\n  File \"/v/torch/nn/modules/module.py\", line 905, in cuda\n    return self._apply(lambda t: t.cuda(device))\nRuntimeError: CUDA error: out of memory\n", cause.CUDAOOM, true, cause.Load},
	{"an exception hides behind another", "Traceback (most recent call last):\n  File \"t.py\", line 5, in step\n    x()\nKeyError: 'a'\n\nDuring handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n  File \"t.py\", line 9, in <module>\n    y()\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n", cause.CUDAOOM, true, ""},
	{"YOLO falls back", "WARNING ⚠️ CUDA OutOfMemoryError in TaskAlignedAssigner, using CPU\n      1/100     10.2G      1.03\n", cause.None, false, ""},
	{"Ultralytics retries", "WARNING CUDA out of memory with batch=16. Reducing to batch=8 and retrying (1/3).\n", cause.None, false, ""},
	{"Composer halves", "CUDA out of memory or excessive memory allocation retries detected. Train microbatch size will be decreased from 8 -> 4.\n", cause.None, false, ""},
	{"accelerate gives up", "Traceback (most recent call last):\n  File \"/v/accelerate/utils/memory.py\", line 140, in decorator\n    raise RuntimeError(\"No executable batch size found, reached zero.\")\nRuntimeError: No executable batch size found, reached zero.\n", cause.CUDAOOM, true, ""},
	{"Lightning searches a batch size", "Batch size 2 succeeded, trying batch size 4\nBatch size 4 failed, trying batch size 2\nFinished batch size finder, will continue with full run using batch size 2\n", cause.None, false, ""},
	{"fairseq retries", "2023-01-01 | WARNING | fairseq.trainer | attempting to recover from OOM in forward/backward pass\n", cause.None, false, ""},
	{"a job that retries", "Caught: CUDA out of memory. Tried to allocate 2.00 GiB. Reducing batch size to 8\nRetrying with smaller batch\n", cause.None, false, ""},
	{"numpy", "Traceback (most recent call last):\n  File \"t.py\", line 5, in <module>\n    x()\nnumpy.core._exceptions._ArrayMemoryError: Unable to allocate 14.9 GiB for an array with shape (2000000000,) and data type float64\n", cause.HostOOM, true, ""},
	{"C++", "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n", cause.HostOOM, true, ""},
	{"Slurm, newer", "slurmstepd: error: Detected 3 oom_kill events in StepId=11.0. Some of the step tasks have been OOM Killed.\nsrun: error: n1: task 0: Out Of Memory\n", cause.HostOOM, true, ""},
	{"Kubernetes", "    State:          Terminated\n      Reason:       OOMKilled\n      Exit Code:    137\n", cause.HostOOM, true, ""},
	{"killed, says bash", "run.sh: line 9: 31337 Killed                  python train.py\n", cause.Unknown, true, ""},
	{"killed, says spawn", "Traceback (most recent call last):\n  File \"t.py\", line 5, in <module>\n    mp.spawn(f)\ntorch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL\n", cause.Unknown, true, ""},
	{"shared memory of a loader", "RuntimeError: DataLoader worker (pid 12) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit.\n", cause.SharedMemory, true, ""},
	{"shared memory by Python", "Traceback (most recent call last):\n  File \"/usr/lib/python3.10/multiprocessing/heap.py\", line 83, in __init__\n    os.ftruncate(self.fd, size)\nOSError: [Errno 28] No space left on device\n", cause.SharedMemory, true, ""},
	{"shared memory of NCCL", "n:1:2 [0] NCCL WARN Error while creating shared memory segment /dev/shm/nccl-AbCdEf (size 9637888)\n", cause.SharedMemory, true, ""},
	{"torch.save, a write that comes up short", "Traceback (most recent call last):\n  File \"/v/torch/serialization.py\", line 629, in save\n    _save(obj, opened_zipfile)\n  File \"/v/torch/serialization.py\", line 863, in _save\n    zip_file.write_record(name, storage, num_bytes)\nRuntimeError: [enforce fail at inline_container.cc:764] . PytorchStreamWriter failed writing file data/12: file write failed\n", cause.Storage, true, cause.Save},
	{"Triton", "triton.runtime.autotuner.OutOfResources: out of resource: shared memory, Required: 180224, Hardware limit: 101376. Reducing block sizes or `num_stages` may help.\n", cause.KernelResources, true, ""},
	{"launch resources", "RuntimeError: CUDA error: too many resources requested for launch\n", cause.KernelResources, true, ""},
	{"illegal access, found by the watchdog", "[E ProcessGroupNCCL.cpp:915] [Rank 3] NCCL watchdog thread terminated with exception: CUDA error: an illegal memory access was encountered\n", cause.IllegalAccess, true, ""},
	{"assertion", "../aten/src/ATen/native/cuda/Loss.cu:240: nll_loss_forward_reduce_cuda_kernel_2d: block: [0,0,0], thread: [5,0,0] Assertion `t >= 0 && t < n_classes` failed.\nTraceback (most recent call last):\n  File \"t.py\", line 5, in <module>\n    x()\nRuntimeError: CUDA error: device-side assert triggered\n", cause.DeviceAssert, true, ""},
	{"Gloo loses a peer", "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.0.0.2]:1234\n", cause.NCCLError, true, ""},
	{"a dead peer, and the cause in another rank", "[rank1]: torch.distributed.DistBackendError: NCCL error in: x.cpp:1, remote process exited or there was a network error, NCCL version 2.20.5\n[rank0]: Traceback (most recent call last):\n[rank0]:   File \"t.py\", line 5, in <module>\n[rank0]:     x()\n[rank0]: ValueError: y\n", cause.UserError, true, ""},
	{"port", "RuntimeError: The server socket has failed to listen on any local network address. The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).\n", cause.PortInUse, true, ""},
	{"one address family is enough", "[W socket.cpp:426] [c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).\nstep 1 loss 2\n", cause.PortInUse, false, ""},
	{"old driver", "RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver\n", cause.Driver, true, ""},
	{"old driver, only warned of", "/v/torch/cuda/__init__.py:107: UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 11040). (Triggered internally at x.cpp:11.)\n", cause.Driver, false, ""},
	{"time limit", "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2024-01-01T00:00:00 DUE TO TIME LIMIT ***\n", cause.Preempted, true, ""},
	{"interrupted", "^CTraceback (most recent call last):\n  File \"t.py\", line 5, in <module>\n    time.sleep(1)\nKeyboardInterrupt\n", cause.Preempted, true, ""},
	{"segmentation fault", "Fatal Python error: Segmentation fault\n\nThread 0x00007f (most recent call first):\n  File \"t.py\", line 5 in f\n", cause.Segfault, true, ""},
	{"not finite", "Traceback (most recent call last):\n  File \"t.py\", line 5, in <module>\n    x()\nFloatingPointError: Loss became infinite or NaN at iteration=10!\n", cause.Diverged, true, ""},
	{"argument", "usage: t.py [-h]\nt.py: error: unrecognized arguments: --lr\n", cause.UserError, true, ""},
	{"configuration", "Error executing job with overrides: []\nTraceback (most recent call last):\n  File \"t.py\", line 5, in main\n    cfg.x\nomegaconf.errors.ConfigAttributeError: Key 'x' is not in struct\n    full_key: x\n    object_type=dict\n", cause.UserError, true, ""},
	{"accelerate reports its child", "Traceback (most recent call last):\n  File \"t.py\", line 5, in <module>\n    x()\nValueError: z\nTraceback (most recent call last):\n  File \"/v/bin/accelerate\", line 8, in <module>\n    sys.exit(main())\nsubprocess.CalledProcessError: Command '['python', 't.py']' returned non-zero exit status 1.\n", cause.UserError, true, ""},
	{"accelerate reports a kill", "subprocess.CalledProcessError: Command '['python', 't.py']' died with <Signals.SIGKILL: 9>.\n", cause.Unknown, true, ""},
	{"wandb cannot reach its server, and training goes on", "wandb: Network error (ConnectionError), entering retry loop.\nstep 1 loss 2\nstep 2 loss 2\n", cause.None, false, ""},
	{"a traceback that is logged, and training goes on", "ERROR:root:upload failed\nTraceback (most recent call last):\n  File \"hooks.py\", line 5, in upload\n    put()\nConnectionError: refused\nstep 1 loss 2\nstep 2 loss 1\n", cause.None, false, ""},
	{"autotuning drops a choice", "Runtime error during autotuning: \nout of resource: shared memory, Required: 131072, Hardware limit: 101376. Reducing block sizes or `num_stages` may help.. \nIgnoring this choice.\nstep 1 loss 2\n", cause.KernelResources, false, ""},
	{"a peer is gone, and an exception says so", "Traceback (most recent call last):\n  File \"t.py\", line 5, in <module>\n    x()\nConnectionResetError: [Errno 104] Connection reset by peer\n", cause.Unknown, true, ""},
	{"a connection is tried again", "WARNING:urllib3.connectionpool:Retrying (Retry(total=2)) after connection broken by 'ProtocolError('Connection aborted.', error(104, 'Connection reset by peer'))'\n", cause.Unknown, false, ""},
	{"TensorFlow without a GPU", "E tensorflow/stream_executor/cuda/cuda_driver.cc:265] failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected\n", cause.Driver, false, ""},
	{"a mapping of shared memory", "Exception in thread Thread-52:\nTraceback (most recent call last):\n  File \"/v/torch/utils/data/_utils/pin_memory.py\", line 29, in do_one_step\n    r = in_queue.get(timeout=5)\nRuntimeError: unable to mmap 2048 bytes from file <filename not specified>: Cannot allocate memory (12)\n", cause.SharedMemory, true, ""},
	{"overflow is ordinary", "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768\nGradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0\n", cause.None, false, ""},
	{"a generated text about memory", "Answer: You can fix the error `CUDA out of memory` by lowering the batch size.\n", cause.None, false, ""},
	{"two ranks on one line", "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 1; 1RuntimeError: CUDA out of memory. Tried to allocate 3.00 GiB (GPU 0; 15.78 GiB total capacity; 13 GiB already allocated)\n", cause.CUDAOOM, true, ""},
	{"SIGABRT after an exception", "Traceback (most recent call last):\n  File \"t.py\", line 5, in <module>\n    x()\nRuntimeError: CUDA error: uncorrectable NVLink error detected during the execution\n", cause.GPUHardware, true, ""},
}

func TestLogs(t *testing.T) {
	for _, c := range logs {
		t.Run(c.name, func(t *testing.T) {
			d := Diagnose(EvidenceFromLog(cause.Scan("log", c.log), nil))
			if d.Cause != c.cause || d.Fatal != c.fatal {
				t.Errorf("%s, fatal %v, want %s, fatal %v", d.Cause, d.Fatal, c.cause, c.fatal)
			}
			if c.phase != "" && d.Phase != c.phase {
				t.Errorf("phase %s, want %s", d.Phase, c.phase)
			}
		})
	}
}
