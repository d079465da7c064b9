package cause

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func b(n int64) *int64 { return &n }

const (
	mib = 1 << 20
	gib = 1 << 30
)

// want is what a test expects of one finding; zero fields are not compared.
type want struct {
	code    Code
	phase   Phase
	device  string
	rank    int // compared if the case has ranked
	line    int
	weight  Weight
	raised  bool
	figures *Figures
}

// scannerCases are logs with the findings that remain at the end, in order.
var scannerCases = []struct {
	name   string
	log    string
	ranked bool
	want   []want
}{
	{
		name: "torch 1.x, forward",
		log: `epoch 3
Traceback (most recent call last):
  File "train.py", line 88, in <module>
    main()
  File "train.py", line 71, in main
    logits = model(batch)
  File "/venv/lib/python3.8/site-packages/torch/nn/modules/module.py", line 1110, in _call_impl
    return forward_call(*input, **kwargs)
  File "net.py", line 20, in forward
    return self.head(x)
RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 3; 15.78 GiB total capacity; 13.50 GiB already allocated; 12.75 MiB free; 14.25 GiB reserved in total by PyTorch)
`,
		want: []want{{code: CUDAOOM, phase: Forward, device: "cuda:3", line: 11, raised: true, figures: &Figures{
			Requested: b(20 * mib), Capacity: b(16943645983), Allocated: b(27 * gib / 2), Free: b(51 * mib / 4)}}},
	},
	{
		name: "torch 1.x with a cap",
		log:  "RuntimeError: CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 16.00 GiB total capacity; 3.50 GiB already allocated; 11.00 GiB free; 4.00 GiB allowed; 3.75 GiB reserved in total by PyTorch)\n",
		want: []want{{code: CUDAOOM, device: "cuda:0", figures: &Figures{
			Requested: b(gib), Capacity: b(16 * gib), Allocated: b(7 * gib / 2), Free: b(11 * gib), Allowed: b(4 * gib)}}},
	},
	{
		name: "torch 1.x, wrapped by the rich library",
		log: "OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 24.00 GiB total capacity; \n" +
			"22.50 GiB already allocated; 16.00 MiB free; 23.00 GiB reserved in total by PyTorch) If reserved memory is >> \n" +
			"allocated memory try setting max_split_size_mb to avoid fragmentation.\n",
		want: []want{{code: CUDAOOM, device: "cuda:0", figures: &Figures{
			Requested: b(20 * mib), Capacity: b(24 * gib), Allocated: b(45 * gib / 2), Free: b(16 * mib)}}},
	},
	{
		name: "torch 2.x, broken by a terminal within words, without the rank's prefix",
		log: "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a to\n" +
			"tal capacity of 24.00 GiB of which 1.50 GiB is free. Including non-PyTorch memory, this process has\n" +
			" 22.00 GiB memory in use. Of the allocated memory 19.50 GiB is allocated by PyTorch, and 1.75 GiB i\n" +
			"s reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTO\n",
		ranked: true,
		want: []want{{code: CUDAOOM, device: "cuda:1", rank: 1, line: 1, figures: &Figures{
			Requested: b(2 * gib), Capacity: b(24 * gib), Free: b(3 * gib / 2), Process: b(22 * gib), Allocated: b(39 * gib / 2), ReservedUnallocated: b(7 * gib / 4)}}},
	},
	{
		name: "Paddle's message",
		log:  "Out of memory error on GPU 0. Cannot allocate 50.000000MB memory on GPU 0, 11.500000GB memory has been allocated and available memory is only 2.000000MB.\n",
		want: []want{{code: CUDAOOM, figures: &Figures{Requested: b(50 * mib), Allocated: b(23 * gib / 2), Free: b(2 * mib)}}},
	},
	{
		name: "Apple's message: what is allowed is no card's capacity",
		log:  "RuntimeError: MPS backend out of memory (MPS allocated: 15.50 GB, other allocations: 11.00 GB, max allowed: 27.00 GB). Tried to allocate 1.00 GB on private pool.\n",
		want: []want{{code: CUDAOOM, line: 1, figures: &Figures{Requested: b(gib), Allocated: b(31 * gib / 2)}}},
	},
	{
		name: "a TPU's message, broken after the sizes",
		log:  "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 22.00G of 16.00G hbm.\n Exceeded hbm capacity by 6.00G.\n",
		want: []want{{code: CUDAOOM, phase: Load, figures: &Figures{Requested: b(22 * gib), Capacity: b(16 * gib)}}},
	},
	{
		name: "torch 2.x with cudaMallocAsync",
		log: "torch.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)\n" +
			"Currently allocated     : 32.50 GiB\nRequested               : 128.00 GiB\nDevice limit            : 140.00 GiB\n" +
			"Free (according to CUDA): 32.00 MiB\nPyTorch limit (set by user-supplied memory fraction)\n                        : 17179869184.00 GiB\n",
		want: []want{{code: CUDAOOM, line: 1, figures: &Figures{
			Requested: b(128 * gib), Capacity: b(140 * gib), Allocated: b(65 * gib / 2), Free: b(32 * mib)}}},
	},
	{
		name: "an operation, and nobody knows who called it",
		log: "File ~/v/lib/python3.12/site-packages/bitsandbytes/autograd/_functions.py:373, in MatMul4Bit.forward(ctx, A, B)\n" +
			"--> 373 output = torch.nn.functional.linear(A, F.dequantize_4bit(B))\n\nOutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB\n",
		want: []want{{code: CUDAOOM, phase: NoPhase, raised: true}},
	},
	{
		name: "FSDP gathers for a save",
		log: "Traceback (most recent call last):\n  File \"t.py\", line 7, in main\n    state = ema.state_dict()\n" +
			"  File \"/v/torch/distributed/fsdp/_state_dict_utils.py\", line 782, in _pre_state_dict_hook\n    x()\n" +
			"  File \"/v/torch/distributed/fsdp/_flat_param.py\", line 14, in unshard\n    y()\nRuntimeError: CUDA out of memory. Tried to allocate 1.00 GiB\n",
		want: []want{{code: CUDAOOM, phase: Save, raised: true}},
	},
	{
		name: "constructors that build no model",
		log: "Traceback (most recent call last):\n  File \"t.py\", line 7, in main\n    d = Normal(mean, 1.0)\n" +
			"  File \"/v/site-packages/torch/distributions/normal.py\", line 59, in __init__\n    super().__init__(batch_shape)\n" +
			"ValueError: Expected parameter loc (Tensor of shape (4,)) of distribution Normal(loc: torch.Size([4])) to satisfy the constraint Real(), but found invalid values:\ntensor([nan, nan])\n",
		want: []want{{code: Diverged, phase: NoPhase, raised: true}},
	},
	{
		name: "torch 2.x with a cap and private pools",
		log:  "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 1 has a total capacity of 64.00 GiB of which 1.50 GiB is free. Including non-PyTorch memory, this process has 62.00 GiB memory in use. 60.00 GiB allowed; Of the allocated memory 58.00 GiB is allocated by PyTorch, with 2.00 GiB allocated in private pools (e.g., CUDA Graphs), and 640.00 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.\n",
		want: []want{{code: CUDAOOM, device: "cuda:1", figures: &Figures{
			Requested: b(512 * mib), Capacity: b(64 * gib), Free: b(3 * gib / 2), Allowed: b(60 * gib), Process: b(62 * gib),
			Allocated: b(58 * gib), ReservedUnallocated: b(640 * mib)}}},
	},
	{
		name: "torch 2.x, one Process entry that is the process itself",
		log:  "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total capacty of 24.00 GiB of which 32.00 MiB is free. Process 4711 has 23.00 GiB memory in use. Of the allocated memory 20.00 GiB is allocated by PyTorch, and 2.00 GiB is reserved by PyTorch but unallocated.\n",
		want: []want{{code: CUDAOOM, device: "cuda:0", figures: &Figures{
			Requested: b(64 * mib), Capacity: b(24 * gib), Free: b(32 * mib), Process: b(23 * gib),
			Allocated: b(20 * gib), ReservedUnallocated: b(2 * gib), OtherProcess: b(0)}}},
	},
	{
		name: "torch 2.x, another process and this one",
		log:  "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total capacity of 24.00 GiB of which 32.00 MiB is free. Process 12 has 18.00 GiB memory in use. Including non-PyTorch memory, this process has 5.00 GiB memory in use. Of the allocated memory 4.00 GiB is allocated by PyTorch, and 256.00 KiB is reserved by PyTorch but unallocated.\n",
		want: []want{{code: CUDAOOM, figures: &Figures{
			Requested: b(64 * mib), Capacity: b(24 * gib), Free: b(32 * mib), Process: b(5 * gib),
			Allocated: b(4 * gib), ReservedUnallocated: b(256 << 10), OtherProcess: b(18 * gib)}}},
	},
	{
		name: "torch 2.3, device index as a raw byte",
		log:  "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU \x02 has a total capacity of 8.00 GiB of which 1.00 GiB is free.\n",
		want: []want{{code: CUDAOOM, device: "cuda:2", figures: &Figures{Requested: b(2 * gib), Capacity: b(8 * gib), Free: b(gib)}}},
	},
	{
		name: "torch 2.2, message cut at a NUL, then an impossible request",
		log: "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU \n" +
			"RuntimeError: CUDA out of memory. Tried to allocate 1073741824.00 GiB. GPU 0 has a total capacity of 8.00 GiB of which 1.00 GiB is free.\n",
		want: []want{
			{code: CUDAOOM, figures: &Figures{Requested: b(2 * gib)}},
			{code: CUDAOOM, device: "cuda:0", figures: &Figures{Capacity: b(8 * gib), Free: b(gib)}},
		},
	},
	{
		name: "message wrapped by hand",
		log:  "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 96.00 MiB.\nGPU 0 has a total capacity of 4.00 GiB of which 64.00 MiB\nis free.\nOf the allocated memory 3.00 GiB is allocated by PyTorch,\nand 32.00 MiB is reserved by PyTorch but unallocated.\nnext line\n",
		want: []want{{code: CUDAOOM, device: "cuda:0", line: 1, figures: &Figures{
			Requested: b(96 * mib), Capacity: b(4 * gib), Free: b(64 * mib), Allocated: b(3 * gib), ReservedUnallocated: b(32 * mib)}}},
	},
	{
		name: "backward, recomputation within, DeepSpeed, two ranks of torchrun",
		log: `[rank1]: Traceback (most recent call last):
[rank0]: Traceback (most recent call last):
[rank1]:   File "t.py", line 9, in <module>
[rank0]:   File "t.py", line 9, in <module>
[rank1]:     engine.backward(loss)
[rank0]:     engine.step()
[rank1]:   File "/v/deepspeed/runtime/activation_checkpointing/checkpointing.py", line 600, in backward
[rank0]:   File "/v/deepspeed/runtime/zero/stage3.py", line 947, in _optimizer_step
[rank1]:     outputs = ctx.run_function(*detached_inputs)
[rank1]:   File "m.py", line 5, in forward
[rank1]:     return a @ b
[rank0]:     self.optimizer.step()
[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.
[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
`,
		ranked: true,
		want: []want{
			{code: CUDAOOM, phase: Optimizer, rank: 0, raised: true, figures: &Figures{Requested: b(gib)}},
			{code: CUDAOOM, phase: Backward, rank: 1, raised: true, figures: &Figures{Requested: b(2 * gib)}},
		},
	},
	{
		name: "mpirun tags in the middle of a line",
		log: "[1,2]<stderr>:  File \"/v/torch/nn/modules/module.py\", line 900, in _apply\n" +
			"[1,2]<stderr>:RuntimeError[1,0]<stderr>:    x = f(\n" +
			"[1,2]<stderr>:: CUDA out of memory. Tried to allocate 72.00 MiB (GPU 2; 39.59 GiB total capacity; 49.19 MiB free)\n",
		ranked: true,
		want:   []want{{code: CUDAOOM, phase: Load, rank: 2, device: "cuda:2", raised: true}},
	},
	{
		name:   "srun --label and Ray",
		log:    "3: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.\n\x1b[36m(Worker pid=12, ip=10.0.0.7)\x1b[0m torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.\n",
		ranked: true,
		want:   []want{{code: CUDAOOM, rank: 3}, {code: CUDAOOM, rank: -1}},
	},
	{
		name: "IPython with colours, evaluation",
		log: "\x1b[0;32m~/eval/loop.py\x1b[0m in \x1b[0;36mvalidation_step\x1b[0;34m(self, batch)\x1b[0m\n" +
			"\x1b[0;32m---> 32\x1b[0;31m         \x1b[0mout\x1b[0m \x1b[0;34m=\x1b[0m \x1b[0mself\x1b[0m(\x1b[0mx\x1b[0m)\n" +
			"\x1b[0;32m/v/torch/nn/functional.py\x1b[0m in \x1b[0;36mlinear\x1b[0;34m(a, b)\x1b[0m\n" +
			"\x1b[0;31mOutOfMemoryError\x1b[0m: CUDA out of memory. Tried to allocate 1.00 GiB.\n",
		want: []want{{code: CUDAOOM, phase: Eval, raised: true}},
	},
	{
		name: "pytest names the place last",
		log:  ">       return torch.batch_norm(\nE       RuntimeError: CUDA out of memory. Tried to allocate 32.00 MiB (GPU 0; 7.76 GiB total capacity; 4.41 GiB already allocated)\n\n/v/torch/nn/functional.py:2438: RuntimeError\n",
		want: []want{{code: CUDAOOM, phase: Forward, device: "cuda:0", line: 2}},
	},
	{
		name: "Lightning's closure is not the optimizer",
		log: `Traceback (most recent call last):
  File "fit.py", line 2, in <module>
    trainer.fit(model)
  File "/v/torch/optim/adamw.py", line 148, in step
    loss = closure()
  File "/v/pytorch_lightning/plugins/precision.py", line 103, in closure
    out = self.training_step(batch)
  File "/v/torch/nn/functional.py", line 1383, in gelu
    return torch._C._nn.gelu(input)
torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.
`,
		want: []want{{code: CUDAOOM, phase: Forward, raised: true}},
	},
	{
		name: "forward and backward on one source line",
		log: `Traceback (most recent call last):
  File "fit.py", line 2, in <module>
    loss(model(x), y).backward()
  File "/v/torch/nn/modules/module.py", line 1110, in _call_impl
    return forward_call(*input, **kwargs)
torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.
`,
		want: []want{{code: CUDAOOM, phase: Forward, raised: true}},
	},
	{
		name: "loading a model",
		log: `Traceback (most recent call last):
  File "run.py", line 2, in <module>
    model = AutoModel.from_pretrained(name)
  File "/v/transformers/modeling_utils.py", line 3375, in from_pretrained
    model = cls(config)
  File "/v/torch/nn/modules/linear.py", line 98, in __init__
    self.weight = Parameter(torch.empty((a, b)))
RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 2359296 bytes. Error code 12 (Cannot allocate memory)
`,
		want: []want{{code: HostOOM, phase: Load, device: "cpu", raised: true, figures: &Figures{Requested: b(2359296)}}},
	},
	{
		name: "OpenBLAS ends the process where it gets no memory",
		log:  "OpenBLAS: malloc failed in gemm_driver\n",
		want: []want{{code: HostOOM, device: "cpu"}},
	},
	{
		name: "OpenBLAS stops trying",
		log:  "OpenBLAS error: Memory allocation still failed after 10 retries, giving up.\n",
		want: []want{{code: HostOOM, device: "cpu"}},
	},
	{
		name: "saving to a full disk",
		log: `Traceback (most recent call last):
  File "run.py", line 2, in <module>
    trainer.train()
  File "/v/transformers/trainer.py", line 2896, in _save_checkpoint
    self.save_model(output_dir)
OSError: [Errno 28] No space left on device: 'out/checkpoint-10/optimizer.pt'
`,
		want: []want{{code: DiskFull, phase: Save, raised: true}},
	},
	{
		name: "pinned memory is the host's",
		log: `Traceback (most recent call last):
  File "/v/torch/utils/data/_utils/pin_memory.py", line 50, in pin_memory
    return data.pin_memory()
RuntimeError: CUDA error: out of memory
`,
		want: []want{{code: HostOOM, phase: NoPhase, raised: true}},
	},
	{
		name: "the job skips the batch by its own words",
		log:  "step 10 loss 2.0\nCUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 8.00 GiB total capacity)\nSkipping batch 11\n",
		want: []want{{code: CUDAOOM, weight: WeightHandled, device: "cuda:0"}},
	},
	{
		name: "gpurun's line about a step that was done again",
		log:  "gpurun: rank 1 ran out of memory in forward at step 1841 (wanted 2.0 GiB); the step was done again with activation checkpointing (0.29 s)\nstep 1842 loss 1.0\n",
		want: []want{{code: CUDAOOM, weight: WeightHandled}},
	},
	{
		name: "gpurun's line about more of them",
		log:  "gpurun: rank 1 ran out of memory in forward 12 more times, the last time at step 1900; the steps were done again with activation checkpointing (0.29 s in all)\n",
		want: []want{{code: CUDAOOM, weight: WeightHandled}},
	},
	{
		name: "gpurun's summary of them",
		log:  "gpurun: attempt 0: trained; memory ran out in 5 steps, done again in place with activation checkpointing, which took 2.75 s\n",
		want: []want{{code: CUDAOOM, weight: WeightHandled}},
	},
	{
		name: "words of recovery before the error",
		log:  "| WARNING: attempting to recover from OOM in forward/backward pass\n| OOM: Ran out of memory with exception: CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 8.00 GiB total capacity)\n",
		want: []want{{code: CUDAOOM, weight: WeightHandled}},
	},
	{
		name: "caught in a function, and steps follow",
		log: `Traceback (most recent call last):
  File "train.py", line 20, in train_step
    loss.backward()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.
step 11 loss 1.92
step 12 loss 1.90
`,
		want: []want{{code: CUDAOOM, phase: Backward, raised: true, weight: WeightHandled}},
	},
	{
		name: "it leaves the program; the steps are another process's",
		log: `Traceback (most recent call last):
  File "train.py", line 20, in <module>
    loss.backward()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.
step 11 loss 1.92
step 12 loss 1.90
`,
		want: []want{{code: CUDAOOM, phase: Backward, raised: true, weight: WeightOutlived}},
	},
	{
		name: "a closing progress bar is no step",
		log:  "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.\n\r  5%|▌   | 13/260 [00:05<38:49,  2.26it/s]\n",
		want: []want{{code: CUDAOOM}},
	},
	{
		name: "Python ignores it",
		log: `Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f>
Traceback (most recent call last):
  File "/v/torch/utils/data/dataloader.py", line 1466, in __del__
    self._shutdown_workers()
AssertionError: can only test a child process
`,
		want: []want{{code: UserError, weight: WeightHarmless}},
	},
	{
		name: "Python ignores one, and a real one follows",
		log:  "Exception ignored in: <_io.TextIOWrapper name='<stdout>' mode='w' encoding='utf-8'>\nBrokenPipeError: [Errno 32] Broken pipe\nx\ny\nTraceback (most recent call last):\n  File \"t.py\", line 1, in <module>\n    f()\nValueError: z\n",
		want: []want{{code: Unknown, weight: WeightHarmless}, {code: UserError, raised: true}},
	},
	{
		name: "a loader's worker is killed",
		log: `Traceback (most recent call last):
  File "/v/torch/utils/data/dataloader.py", line 1163, in _try_get_data
    data = self._data_queue.get(timeout=timeout)
RuntimeError: DataLoader worker (pid 6598) is killed by signal: Killed.
`,
		want: []want{{code: HostOOM, raised: true}},
	},
	{
		name: "the same words without a traceback prove nothing",
		log:  "RuntimeError: DataLoader worker (pid 6598) is killed by signal: Killed.\n",
		want: []want{{code: HostOOM, weight: WeightWarning}},
	},
	{
		name: "Ray's wrapper does not say which memory",
		log: `ray.exceptions.RayTaskError(OutOfMemoryError): ray::Worker.run() (pid=3, ip=10.0.0.1)
  File "/v/ray/base.py", line 54, in run
    output = ray.get(output)
ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.
`,
		want: []want{{code: HostOOM, raised: true}},
	},
	{
		name: "DataParallel's replica, with the original traceback",
		log: `Traceback (most recent call last):
  File "/v/torch/_utils.py", line 715, in reraise
    raise exception
torch.OutOfMemoryError: Caught OutOfMemoryError in replica 0 on device 0.
Original Traceback (most recent call last):
  File "/v/torch/nn/modules/linear.py", line 125, in forward
    return F.linear(input, self.weight, self.bias)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.
`,
		want: []want{{code: CUDAOOM, phase: Forward, raised: true}},
	},
	{
		name: "pdsh before PyTorch's own prefix",
		log: `worker-5: [rank22]: Traceback (most recent call last):
worker-5: [rank22]:   File "main.py", line 9, in <module>
worker-5: [rank22]:     engine = deepspeed.initialize(model=m)
worker-4: [rank16]: Traceback (most recent call last):
worker-5: [rank22]:   File "/v/torch/nn/modules/module.py", line 900, in _apply
worker-5: [rank22]:     module._apply(fn)
worker-5: [rank22]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.
`,
		ranked: true,
		want:   []want{{code: CUDAOOM, phase: Load, rank: 22, raised: true}},
	},
	{
		name: "rich draws a box",
		log: `╭───────────────────── Traceback (most recent call last) ──────────────────────╮
│ /app/train.py:12 in main                                                     │
│                                                                              │
│    11 │   out = model(x)                                                     │
│ ❱  12 │   loss.backward()                                                    │
│    13                                                                        │
│                                                                              │
│ /v/torch/_tensor.py:488 in backward                                          │
│                                                                              │
│ ❱ 488 │   │   torch.autograd.backward(                                       │
╰──────────────────────────────────────────────────────────────────────────────╯
OutOfMemoryError: CUDA out of memory. Tried to allocate 786.00 MiB (GPU 0; 39.56 GiB total capacity)
`,
		want: []want{{code: CUDAOOM, phase: Backward, device: "cuda:0", raised: true}},
	},
	{
		name: "words of recovery that name the error themselves",
		log:  "root[1] DEBUG CUDA out of memory. Tried to allocate 422.00 MiB (GPU 0; 15.78 GiB total capacity)\nroot[1] DEBUG Traceback (most recent call last):\nroot[1] WARNING CUDA OOM Error during batch execution, skipping batch.\n",
		want: []want{{code: CUDAOOM, weight: WeightHandled}, {code: CUDAOOM, weight: WeightHandled}},
	},
	{
		name: "exceptions of the job",
		log: `Traceback (most recent call last):
  File "a.py", line 1, in <module>
    import nemo
ModuleNotFoundError: No module named 'nemo'
Traceback (most recent call last):
  File "a.py", line 1, in <module>
    assert x
AssertionError
Traceback (most recent call last):
  File "a.py", line 1, in <module>
    x()
KeyboardInterrupt
`,
		want: []want{{code: UserError, phase: Load, raised: true}, {code: UserError, raised: true}, {code: Preempted, raised: true, weight: WeightSymptom}},
	},
	{
		name: "Xid events",
		log:  "NVRM: Xid (PCI:0000:06:00): 79, pid=1, GPU has fallen off the bus.\n[ 12.3] NVRM: Xid (PCI:0000:06:00): 31, pid=7, name=python, Ch 0\n[ 12.3] NVRM: Xid (PCI:0000:06:00): 300, new\n",
		want: []want{{code: GPUHardware}, {code: IllegalAccess}, {code: Unknown, weight: WeightWarning}},
	},
	{
		name: "talk about running out of memory",
		log: "If you are running out of memory, consider decreasing `gpu_memory_utilization`.\n" +
			"Tip: if you see CUDA out of memory errors, use a smaller batch\n" +
			"PYTORCH_CUDA_ALLOC_CONF is set to avoid CUDA out of memory\n",
		want: []want{{code: CUDAOOM, weight: WeightWarning}, {code: CUDAOOM, weight: WeightWarning}},
	},
	{
		name: "a healthy log",
		log:  "Waiting in store based barrier to initialize process group for rank: 0\nSaved to out/model.py in 3 s\nWARNING: retrying download (1/3)\n{'loss': 1.2, 'epoch': 0.1}\n",
	},
}

func TestScanner(t *testing.T) {
	for _, c := range scannerCases {
		t.Run(c.name, func(t *testing.T) {
			got := Scan("stderr", c.log)
			if len(got) != len(c.want) {
				t.Fatalf("%d findings, want %d: %+v", len(got), len(c.want), got)
			}
			for i, w := range c.want {
				compare(t, fmt.Sprintf("finding %d", i), got[i], w, c.ranked)
			}
		})
	}
}

func compare(t *testing.T, name string, got Finding, w want, ranked bool) {
	t.Helper()
	if got.Code != w.code {
		t.Errorf("%s: code %s, want %s (%s)", name, got.Code, w.code, got.Text)
	}
	if w.phase != "" && got.Phase != w.phase {
		t.Errorf("%s: phase %s, want %s", name, got.Phase, w.phase)
	}
	if w.device != "" && got.Device != w.device {
		t.Errorf("%s: device %q, want %q", name, got.Device, w.device)
	}
	if ranked && got.Rank != w.rank {
		t.Errorf("%s: rank %d, want %d", name, got.Rank, w.rank)
	}
	if w.line != 0 && got.Line != w.line {
		t.Errorf("%s: line %d, want %d", name, got.Line, w.line)
	}
	if got.Weight != w.weight || got.Raised != w.raised {
		t.Errorf("%s: %s, raised %v, want %s, raised %v", name, got.Weight, got.Raised, w.weight, w.raised)
	}
	if w.figures != nil {
		if diff := cmp.Diff(*w.figures, got.Figures); diff != "" {
			t.Errorf("%s: figures (-want +got):\n%s", name, diff)
		}
	}
}

func TestScannerNeedsNoNewlineAtTheEnd(t *testing.T) {
	got := read([]byte("slurmstepd: error: Detected 1 oom_kill event in StepId=1.batch"))
	if len(got) != 1 || got[0].Code != HostOOM {
		t.Errorf("got %+v, want one host-oom", got)
	}
}

func TestScannerKeepsBounds(t *testing.T) {
	var log strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&log, "../aten/src/ATen/native/cuda/Indexing.cu:1292: indexSelectLargeIndex: block: [%d,0,0], thread: [0,0,0] Assertion `srcIndex < srcSelectDimSize` failed.\n", i)
		fmt.Fprintf(&log, "step %d loss=nan\n", i)
	}
	got := map[int]bool{}
	for _, f := range read([]byte(log.String())) {
		got[f.Seq] = true // in its last state
	}
	if len(got) > loggedLimit+weakLimit {
		t.Errorf("%d findings of the same two lines, want at most %d", len(got), loggedLimit+weakLimit)
	}
	long := read([]byte("RuntimeError: CUDA out of memory. "+strings.Repeat("x", 1<<20)+"\nplain\n"), 4096)
	if len(long) != 1 || len(long[0].Text) > textLimit {
		t.Errorf("a line of 1 MiB gave %d findings, want one with a text of at most %d bytes", len(long), textLimit)
	}
}

func TestLastStep(t *testing.T) {
	log := strings.Repeat("x\n", 5000) + "iteration      120/ 500 | lm loss: 2.1\nsaved\n" +
		"Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n    g()\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.\n"
	got := read([]byte(log))
	if len(got) != 1 || got[0].Step != 120 {
		t.Errorf("got %+v, want one finding after step 120", got)
	}
}

func TestXID(t *testing.T) {
	for n, want := range map[int]Code{13: IllegalAccess, 31: IllegalAccess, 48: GPUHardware, 79: GPUHardware, 95: GPUHardware, 119: GPUHardware, 7: Unknown} {
		if got, _ := XID(n); got != want {
			t.Errorf("XID(%d) = %s, want %s", n, got, want)
		}
	}
}

// Every pattern must be found by its trigger, and none may be hidden by an earlier one with
// another result.
func TestPatternsAreReachable(t *testing.T) {
	for _, p := range patterns {
		line := strings.Join(p.words, " … ")
		if lines().find([]byte(line)) != 0 && !strings.Contains(line, trigger(p.words)) {
			t.Errorf("%q: the prefilter does not see it", line)
		}
		got := classify(line)
		if got == nil || got.code != p.code && len(p.without) == 0 {
			t.Errorf("%q is classified as %+v, want %s", line, got, p.code)
		}
	}
}

// A loop that raises and catches without end does not fill the memory: the first exceptions are
// kept, and the last one.
func TestEndlessExceptionsKeepTheLastOne(t *testing.T) {
	var log strings.Builder
	for i := range 3 * raisedLimit {
		fmt.Fprintf(&log, "Traceback (most recent call last):\n  File \"t.py\", line 1, in <module>\n    f()\nValueError: number %d\n", i)
	}
	all := Scan("stderr", log.String())
	if len(all) != raisedLimit {
		t.Fatalf("%d findings, want %d", len(all), raisedLimit)
	}
	if got, want := all[len(all)-1].Text, fmt.Sprintf("ValueError: number %d", 3*raisedLimit-1); got != want {
		t.Errorf("the last one is %q, want %q", got, want)
	}
}

// TestRepeatedErrorsAreKeptOnce: a job that skips each batch that is too large has the same error some hundred thousand
// times, and each is compared with the causes before it.
func TestRepeatedErrorsAreKeptOnce(t *testing.T) {
	s := NewScanner("stdout")
	for range 1000 {
		fmt.Fprint(s, "Traceback (most recent call last):\n  File \"train.py\", line 7, in <module>\n    model(x)\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\nstep 12 loss 2.0\n")
	}
	if len(s.start.codes) != 1 || s.start.codes[0] != CUDAOOM {
		t.Errorf("%d causes are kept", len(s.start.codes))
	}
}
