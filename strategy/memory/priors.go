package memory

// Assumptions about a job that has not been measured. Each figure names its source:
// "landscape" are the measured plans of five models on an H200 with torch 2.11 in
// testdata/landscape.jsonl, "frameworks" the sources of PyTorch, transformers and
// DeepSpeed.
const (
	// expandableRoom and defaultRoom are the least memory under which a plan trains, as a factor
	// on the peak that its allocator gives out without a limit: 1.004–1.025 with expandable
	// segments, 1.03–1.14 without (landscape, six plans bisected).
	expandableRoom = 1.02
	defaultRoom    = 1.06
	// expandableMost and defaultMost are the most of it.
	expandableMost = 1.03
	defaultMost    = 1.14
	// hostRoom is the same for a process on the CPU, whose heap keeps freed memory. It is a guess
	// on the safe side.
	hostRoom = 1.10
	// processData is the bytes of a process on the CPU with PyTorch, its hook and its samples, before
	// there is a model: 130 to 290 MiB were seen.
	processData = 290 << 20

	// Fractions added to the predicted activations in the bound, by their evidence: half of the
	// errors' 95th percentiles (landscape).
	marginSame       = 0.01  // the same mode was measured to the end of a forward
	marginSeen       = 0.02  // every block was seen
	marginPart       = 0.025 // two blocks or more
	marginOne        = 0.06  // one block
	marginCheckpoint = 0.03  // inputs of checkpointed blocks, by the first block's
	marginUnreached  = 0.30  // a list that was not reached, by the one before it
	marginPrior      = 1.20  // no block was seen: it holds 10 to 58 times its input
	marginHead       = 0.03
	// marginHeadUnseen is marginHead for a loss that autocast computes and that was not reached:
	// models hold logits in 16 bit, in fp32, or in both (measured: up to 1.16 times headWhole).
	marginHeadUnseen = 0.16
	marginWindow     = 0.35 // the block that is recomputed, in units of its window
	marginLonger     = 0.02 // for each doubling of the sequence
	marginLate       = 0.01
	marginBase       = 0.01
	// marginHost is marginBase for a process on the CPU: its heap and its threads' stacks
	// are not counted one by one.
	marginHost = 0.05
	// marginStates is the margin of weights, gradients and states, which are counted; the
	// allocator rounds each up to 512 bytes.
	marginStates = 0.003
	// marginSharded is the margin of the temporary bytes of sharded weights, gathered parameters
	// and buckets (frameworks; reserved over allocated was 1.0–1.6 in published runs).
	marginSharded = 0.20

	// marginStream is the margin of blocks that were seen under FSDP's mixed precision, in a mode
	// without it. FSDP casts the hidden state to 16 bits, which autocast does not change; with
	// autocast blocks hold −2 to +20 % (GPT-2 and Llama, measured on two H200s with torch 2.11).
	marginStream = 0.20

	// headHeld and headTemporary are the bytes that the head and the loss of a causal language
	// model hold, and need in addition for a moment, in units of the logits in fp32: 1.03–1.06
	// and 2.0 (landscape; transformers' ForCausalLMLoss computes in fp32). Older versions need up
	// to half as much more.
	headHeld      = 1.05
	headTemporary = 2.0
	// headHalf is headHeld for logits in 16 bits without a copy in fp32.
	headHalf = 0.6
	// headTemporaryOutside is the same in fp32 for a loss that the job computes outside of its model: the
	// log-softmax, and the gradients of it and of the logits, which the job still holds (traced on a CPU with
	// torch 1.13).
	headTemporaryOutside = 3.0
	// headForward is the most inside the forward under autocast: the logits in 16 bit, in
	// fp32 and their log-softmax (landscape: 2.56).
	headForward = 2.5
	// headForwardPlain is the same if the loss is left to autocast (landscape: BERT).
	headForwardPlain = 2.15
	// lossPart is the bytes that a cross entropy in parts works with where they are free: less
	// where less is (launcher/hook/inside/remedies/losspart.py, WORK).
	lossPart = 256 << 20
	// headChunk is the most that a framework's loss in chunks needs for one of them, in units of
	// the logits in fp32: with it estimates agree with torchtune's published peaks.
	headChunk = 3. / 64
	// headFused is the most that a fused loss needs for a moment: parts of the logits, and the
	// output's gradient in fp32. It is a guess on the safe side.
	headFused = .25

	// The need of recomputing a block, backward included, in units of the bytes that it holds
	// without checkpointing, in fp32 and in 16 bit (landscape: 1.2, 1.2–2.1).
	windowFull = 1.2
	windowHalf = 1.6
	// workspace is the bytes that kernels take in a backward: cuBLAS 8.5 to 32 MiB, by the card
	// (landscape: 25), cuDNN some more. The bound takes twice as much.
	workspace = 24 << 20
	// backwardFactor is the temporary need of a block's backward without checkpointing, in the
	// same units, in fp32 and in 16 bit (landscape: ViT .36 and .88).
	backwardFactor     = 0.35
	backwardFactorHalf = 0.85

	// blockInputs is the bytes that a block holds, in units of its input, if no block was seen:
	// 10–58 (landscape), in a
	// convolutional net 3 (a ResNet's bottleneck) to 12 (a ConvNeXt's block).
	blockInputs = 25
	// narrowerList is the ratio of widths below which the blocks of a list that was not reached
	// are narrower than those before it. In a U-Net their inputs are joined with those of the way
	// down (measured: 1.3 to 2 times as much as there), and an autoencoder's decoder works on
	// more tokens than its encoder (MAE masks three quarters).
	narrowerList   = 0.9
	returningList  = 1.5
	returningMore  = 1.4
	returningKeeps = 0.4

	// autocastBlock is the ratio of a block's bytes under autocast to those in fp32: .50–.75, .27
	// if fp32 attention kept its scores; eager attention .71–1.11.
	autocastBlock       = 0.65
	autocastBlockSD     = 0.20
	halfBlock           = 0.52 // 16-bit weights over fp32: .23–.52
	fusedAttentionBlock = 0.45 // SDPA over eager: .44–.48 in fp32 and .25–.44 under autocast; 1.0 if fp32 falls back
	fusedDoubt          = 0.65 // the share of the way to the most that the bound takes
	fusedFallback       = 1.0  // the most of it in fp32, and in 16 bit
	fusedFallbackHalf   = 0.6

	// selectiveHeld is the share of a block that selective checkpointing keeps; the bound takes
	// all of it, because with fused attention it may save nothing (published: 25.5 → 24.9 GB).
	selectiveHeld = 0.6
	// offloadedHeld is the share of the activations that stays when they go to the host: −62 %
	// without checkpointing (pytorch #174436).
	offloadedHeld = 0.4
	// twiceHeld is the bytes that the graphs of two derivatives hold in addition to the forward, in
	// units of what that holds (measured: 2.4 to 2.5 for a transformer with eager attention).
	twiceHeld     = 2.5
	twiceHeldMore = 0.4
)

// DeepSpeed's defaults, in elements (frameworks: DeepSpeed's runtime/zero/config.py).
const (
	// gradients that are reduced together; twice that if communication overlaps, by default in stage 3
	reduceBucket   = 5e8
	liveParameters = 1e9 // stage3_max_live_parameters
	prefetchBucket = 5e7 // stage3_prefetch_bucket_size
	subGroup       = 1e9 // stage 3: parameters that the optimizer steps at once
)
