package strategy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy/cause"
)

const (
	barrier = "Traceback (most recent call last):\n  File \"train.py\", line 41, in <module>\n    main()\n  File \"train.py\", line 20, in main\n    dist.barrier()\n" +
		"  File \"/v/lib/python3.10/site-packages/torch/distributed/distributed_c10d.py\", line 3685, in barrier\n    work = default_pg.barrier(opts=opts)\n"
	inEval = "  File \"/v/lib/python3.10/site-packages/torch/nn/modules/module.py\", line 1518, in _wrapped_call_impl\n    return self._call_impl(*args, **kwargs)\n" +
		"  File \"/v/lib/python3.10/site-packages/torch/nn/modules/linear.py\", line 114, in forward\n    return F.linear(input, self.weight, self.bias)\n" +
		"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.20 GiB is free.\n"
	noGrad  = "  File \"/v/lib/python3.10/site-packages/torch/utils/_contextlib.py\", line 115, in decorate_context\n    return func(*args, **kwargs)\n"
	noGrad1 = "  File \"/v/lib/python3.8/site-packages/torch/autograd/grad_mode.py\", line 27, in decorate_context\n    return func(*args, **kwargs)\n"
	begins  = "Traceback (most recent call last):\n  File \"train.py\", line 141, in <module>\n    main()\n"
	oneLine = "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.90 GiB total capacity; 14.80 GiB already allocated; 200.00 MiB free; 15.00 GiB reserved in total by PyTorch)\n"
	bound   = "[W socket.cpp:426] [c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).\n"
)

// counted is the output of a run that counts its steps with a word of its choice.
var counted = func() string {
	var b strings.Builder
	for i := range 8 {
		fmt.Fprintf(&b, "it %04d | nll 1.3%d | 12.0 ms\n", 3*i, 9-i)
	}
	return b.String()
}()

// steps are lines of a training: enough to fill a buffer that Python writes when it ends.
func steps(n int) string {
	return strings.Repeat("step 12 | loss 0.31 | lr 1e-4 | 412 tokens a second | grad norm 0.482 | memory 20.1 GiB\nstep 13 | loss 0.30 | lr 1e-4 | 413 tokens a second | grad norm 0.481 | memory 20.1 GiB\n", n)
}

// unseen are logs in the form of public ones.
var unseen = []struct {
	name  string
	log   string
	exit  int // -1: not known
	cause cause.Code
	fatal bool
	phase cause.Phase
}{
	{"NVML's mismatch inside an NCCL error", barrier + "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1333, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.18.1\nncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error. \nLast error:\nnvmlInit_v2() failed: Driver/library version mismatch\n", 1, cause.Driver, true, ""},
	{"the same, told in a warning before", "n1:29:29 [0] misc/nvmlwrap.cc:100 NCCL WARN nvmlInit_v2() failed: Driver/library version mismatch\n" + barrier + "RuntimeError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1191, unhandled system error, NCCL version 2.10.3\nncclSystemError: System call (e.g. socket, malloc) or external library call failed.\n", 1, cause.Driver, true, ""},
	{"the warning alone", "n1:29:29 [0] misc/nvmlwrap.cc:100 NCCL WARN nvmlInit_v2() failed: Driver/library version mismatch\nstep 1 loss 2\n", -1, cause.NCCLError, false, ""},
	{"a driver that is too old, behind the error that follows", "/v/torch/cuda/__init__.py:107: UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver. (Triggered internally at ../c10/cuda/CUDAFunctions.cpp:109.)\n" +
		begins + "  File \"/v/transformers/training_args.py\", line 1480, in __post_init__\n    raise ValueError(\nValueError: Your setup doesn't support bf16/gpu. You need torch>=1.10, using Ampere GPU with cuda>=11.0\n", 1, cause.Driver, true, ""},
	{"that error alone", begins + "  File \"/v/transformers/training_args.py\", line 1480, in __post_init__\n    raise ValueError(\nValueError: Your setup doesn't support bf16/gpu. You need torch>=1.10, using Ampere GPU with cuda>=11.0\n", 1, cause.UserError, true, ""},
	{"the driver's warning, and another error", "/v/torch/cuda/__init__.py:107: UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 11040). (Triggered internally at x.cpp:109.)\n" + valueError, 1, cause.UserError, true, ""},
	{"a node failed", "slurmstepd: error: *** JOB 4242 ON n17 CANCELLED AT 2024-03-01T07:11:02 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\n", -1, cause.GPUHardware, true, ""},
	{"a node failed under a step", "srun: error: Node failure on n17\nslurmstepd: error: *** STEP 4242.0 ON n16 CANCELLED AT 2024-03-01T07:11:02 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\n", -1, cause.GPUHardware, true, ""},
	{"preempted, still", "slurmstepd: error: *** JOB 4242 ON n17 CANCELLED AT 2024-03-01T07:11:02 DUE TO PREEMPTION ***\n", -1, cause.Preempted, true, ""},
	{"HCCL", begins + "RuntimeError: [ERROR] HCCL error in: torch_npu/csrc/distributed/ProcessGroupHCCL.cpp:64\n[ERROR] 2024-03-01-07:11:02 (PID:4242, Device:0, RankID:0) ERR02200 DIST call hccl api failed.\nEI0006: Getting socket times out. Reason: The remote does not initiate an connect request.\n", 1, cause.NCCLError, true, ""},
	{"RCCL", begins + "RuntimeError: RCCL error in: /pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1025, internal error, RCCL version 2.18.3\n", 1, cause.NCCLError, true, ""},
	{"XCCL", begins + "RuntimeError: XCCL error in: /pytorch/torch/csrc/distributed/c10d/ProcessGroupXCCL.cpp:512, invalid usage\n", 1, cause.NCCLError, true, ""},
	{"oneCCL", begins + "RuntimeError: oneCCL: ze_handle_manager.cpp:226 get_ptr: EXCEPTION: unknown memory type\n", 1, cause.NCCLError, true, ""},
	{"an index behind a library's assertion", "Traceback (most recent call last):\n  File \"train.py\", line 31, in <module>\n    main()\n  File \"train.py\", line 27, in main\n    table[ids[0]]\nIndexError: index 50257 is out of range\n/b/lib/src/gather.cu:118: gather: block: [3,0,0], thread: [17,0,0] Assertion `index < rows` failed.\nterminate called after throwing an instance of 'lib::cuda_error'\n  what():  device-side assert triggered\n", -1, cause.UserError, true, ""},
	{"an assertion, and an index only after it", "/b/lib/src/gather.cu:118: gather: block: [3,0,0], thread: [17,0,0] Assertion `index < rows` failed.\n" + "Traceback (most recent call last):\n  File \"train.py\", line 31, in <module>\n    main()\nIndexError: pop from empty list\n", 1, cause.DeviceAssert, true, ""},

	{"evaluation in the user's estimate_loss", begins + noGrad + "  File \"train.py\", line 77, in estimate_loss\n    logits, loss = model(x, y)\n" + inEval, 1, cause.CUDAOOM, true, cause.Eval},
	{"evaluation in the user's test", begins + noGrad1 + "  File \"train.py\", line 77, in test\n    out = model(x)\n" + inEval, 1, cause.CUDAOOM, true, cause.Eval},
	{"evaluation in the user's test, without a wrapper", begins + "  File \"train.py\", line 77, in test\n    out = model(x)\n" + inEval, 1, cause.CUDAOOM, true, cause.Eval},
	{"evaluation by a name of its own under the wrapper", begins + noGrad + "  File \"train.py\", line 77, in compute_accuracy\n    out = model(x)\n" + inEval, 1, cause.CUDAOOM, true, cause.Eval},
	{"training that is called by a test", begins + "  File \"train.py\", line 77, in test\n    train_one_epoch(model)\n  File \"train.py\", line 50, in train_one_epoch\n    out = model(x)\n" + inEval, 1, cause.CUDAOOM, true, cause.Forward},
	{"no gradients in a training step", begins + noGrad + "  File \"train.py\", line 77, in update_teacher\n    out = teacher(x)\n" + inEval, 1, cause.CUDAOOM, true, cause.Forward},

	{"one line that the job caught, and goes on", "epoch 1 acc 0.52\n" + oneLine + "epoch 2 acc 0.61\nepoch 3 acc 0.66\nepoch 4 acc 0.68\nepoch 5 acc 0.70\n", -1, cause.None, false, ""},
	{"one line that the job caught, and ends well", oneLine + "using 8 samples from now on\nTraining complete, the model is in out/\n", -1, cause.None, false, ""},
	{"one line, and the end", "epoch 1 acc 0.52\n" + oneLine, -1, cause.CUDAOOM, true, ""},
	{"an early failed start before a good ending", oomTop + steps(3) + "{'train_runtime': 331.2, 'train_loss': 0.31}\n", -1, cause.None, false, ""},
	{"an early failed start, and it trains on", oomTop + steps(600), -1, cause.None, false, ""},
	{"what had been printed before is written after the traceback", oomTop + steps(20), -1, cause.CUDAOOM, true, ""},
	{"a port that was taken at the first start", "RuntimeError: The server socket has failed to listen on any local network address. The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).\n" + steps(4) + "Training finished\n", -1, cause.None, false, ""},
	{"a bind warning", bound + steps(4), -1, cause.None, false, ""},
	{"a server takes another port", "WARNING: port 6006: Address already in use, trying 6007\n" + steps(4), -1, cause.None, false, ""},
	{"a tunnel that is there already", "bind [127.0.0.1]:6006: Address already in use\nchannel_setup_fwd_listener_tcpip: cannot listen to port: 6006\n" + steps(4), -1, cause.None, false, ""},

	{"a GPU's error before the scheduler's cancel", "[rank3]: " + strings.ReplaceAll(strings.TrimSuffix(begins, "\n"), "\n", "\n[rank3]: ") + "\n[rank3]: RuntimeError: CUDA error: unspecified launch failure\nslurmstepd: error: *** JOB 4242 ON n17 CANCELLED AT 2024-03-01T07:11:02 DUE TO TIME LIMIT ***\n", -1, cause.Unknown, true, ""},
	{"the cancel alone", "step 7 loss 2\nslurmstepd: error: *** JOB 4242 ON n17 CANCELLED AT 2024-03-01T07:11:02 DUE TO TIME LIMIT ***\n", -1, cause.Preempted, true, ""},
	{"Ray's SIGTERM banner", "*** SIGTERM received at time=1709277062 on cpu 12 ***\nPC: @     0x7f3a1c0e9117  (unknown)  (unknown)\n    @     0x7f3a1c08f520  (unknown)  (unknown)\n", -1, cause.Preempted, true, ""},
	{"a crash, told by the same handler", "*** SIGSEGV received at time=1709277062 on cpu 12 ***\nPC: @     0x7f3a1c0e9117  (unknown)  (unknown)\n", -1, cause.Segfault, true, ""},
	{"click's usage error", "Usage: train.py [OPTIONS]\nTry 'train.py --help' for help.\n\nError: No such option: --batchsize (Possible options: --batch-size)\n", 2, cause.UserError, true, ""},
	{"argparse's usage error, without an exit code", "usage: train.py [-h] --data DATA\ntrain.py: error: argument command: invalid choice: 'trian' (choose from 'train', 'test')\n", -1, cause.UserError, true, ""},
	{"absl's usage error", "FATAL Flags parsing error:\n  Unknown command line flag 'batchsize'. Did you mean: batch_size ?\nPass --helpshort or --helpfull to see help on flags.\n", 1, cause.UserError, true, ""},
	{"exit code 1, and nothing that explains it", "step 1 loss 2\nstep 2 loss 1\n", 1, cause.Unknown, true, ""},
	{"exit code 1, and the words of sys.exit", "step 1 loss 2\nno validation data found in data/val\n", 1, cause.UserError, true, ""},
	{"a class that begins with an underscore", oldDriver + raise("torch._C._LinAlgError: torch.linalg.solve: The solver failed because the input matrix is singular.", "t.py 3 <module>"), -1, cause.UserError, true, ""},
	{"a crash of a loader's worker, cut off", "Epoch:   0%|  | 0/75 [00:00<?, ?ep/sERROR: Unexpected segmentation fault encountered in worker.\nEpoch:   0%|  | 0/75 [00:01<?, ?ep/s]\n", -1, cause.Segfault, true, ""},
	{"a loss that is not finite, in the job's words", raise("RuntimeError: non-finite loss nan at iteration 20, aborting", "t.py 3 <module>"), -1, cause.Diverged, true, ""},
	{"gradients that are not finite", raise("ValueError: the gradients are not finite after 12 steps", "t.py 3 <module>"), -1, cause.Diverged, true, ""},
	{"data that is not finite", raise("ValueError: Input contains NaN, which the loss cannot handle", "t.py 3 <module>"), -1, cause.UserError, true, ""},
	{"a counter of any name begins again", counted + leftByValue + counted + "saved model to out/last.pt\n", -1, cause.None, false, ""},
	{"a counter of any name, and an interrupt of its second run", counted + leftByValue + counted + raise("KeyboardInterrupt", "t.py 3 <module>"), -1, cause.Preempted, true, ""},
	{"places are no counters", leftByValue + "rank 0: 1.5 GiB\nrank 1: 1.5 GiB\nrank 2: 1.5 GiB\nrank 3: 1.5 GiB\nrank 4: 1.5 GiB\n", -1, cause.UserError, true, ""},
	{"wrong arguments, and then another program's output", "t.py: error: unrecognized arguments: --optimizer adam\n" + strings.Repeat("Added mp-1120732 to the set of graphs\n", 2000), -1, cause.None, false, ""},
	{"wrong arguments, and then a few lines", "t.py: error: unrecognized arguments: --optimizer adam\n" + strings.Repeat("Added mp-1120732 to the set of graphs\n", 20), -1, cause.UserError, true, ""},
	{"those words, and no exit code", "no validation data found in data/val\n", -1, cause.None, false, ""},
}

func TestUnseenLogs(t *testing.T) {
	for _, l := range unseen {
		t.Run(l.name, func(t *testing.T) {
			var exit *int
			if l.exit >= 0 {
				exit = &l.exit
			}
			d := Diagnose(EvidenceFromLog(cause.Scan("log", l.log), exit))
			if d.Cause != l.cause || d.Fatal != l.fatal || l.phase != "" && d.Phase != l.phase {
				t.Errorf("cause %s, fatal %v, phase %s (%q); want %s, %v, %s", d.Cause, d.Fatal, d.Phase, d.Error, l.cause, l.fatal, l.phase)
			}
		})
	}
}

// TestFailedNode: no GPU has to be taken out of service.
func TestFailedNode(t *testing.T) {
	d := Diagnose(EvidenceFromLog(cause.Scan("log", "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2024-03-01T07:11:02 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\n"), nil))
	if !strings.Contains(d.Sentence(), "a node failed") || !strings.Contains(d.Advice, "other nodes") {
		t.Errorf("%q, %q", d.Sentence(), d.Advice)
	}
}
