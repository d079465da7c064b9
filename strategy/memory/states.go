package memory

import (
	"math"
	"strings"
)

// states are the bytes that a rank holds for any batch.
type states struct {
	// weights exist from the load on, optimizer from the first step on.
	weights, optimizer float64
	// gradients exist at the end of the backward; held is the part that stays while another micro
	// batch of the step runs.
	gradients, held float64
	// early is the part of the optimizer's bytes that exists before the first call, forming the
	// bytes that stay in a bucket while another micro batch runs.
	early, forming float64
	// Temporary bytes: while the model is made ready, in a forward or backward, in a backward,
	// and in the optimizer's step.
	load, gather, bucket, step float64
	// ready is a buffer that exists from the backward's first gradient on.
	ready float64
	// Bytes outside the device; pinnedMore is the addition of a second micro batch.
	host, pinned, nvme, pinnedMore float64
	// sharded: the temporary bytes are DeepSpeed's or FSDP's defaults.
	sharded bool
}

// width is the bytes of one element of a dtype.
func width(dtype string) float64 {
	switch dtype {
	case "bf16", "fp16":
		return 2
	case "fp8":
		return 1
	}
	return 4
}

// weights is the bytes of the parameters in a plan's dtype, and of the buffers.
func (f *Predictor) weights(p RankPlan) float64 {
	own := float64(f.model.Parameters) * width(p.Weights)
	if d := f.model.Dtype(); d != "" && (p.Weights == "" || p.Weights == d) {
		own = 0
		for _, n := range f.model.Bytes {
			own += float64(n)
		}
	}
	return own + float64(f.model.Buffers)
}

// states returns the states of a plan, by its optimizer, its sharding and its offload.
func (f *Predictor) states(p RankPlan) states {
	if p.DeepSpeed || strings.HasPrefix(p.Sharding, "zero") {
		return f.deepSpeed(p)
	}
	trained := float64(f.model.Trainable)
	s := states{weights: f.weights(p), gradients: trained * width(p.Weights)}
	s.held = s.gradients
	s.optimizer = f.optimizer(p)
	if f.foreach(p) {
		s.step = s.gradients // intermediates as large as the parameters (torch.optim's documentation)
	}
	if p.Sharding == "fsdp" {
		f.fsdp(p, &s)
	} else if p.DataParallel > 1 {
		// DistributedDataParallel makes its buckets at the start. It makes them again for the
		// second step, in the order of the gradients, and from then on holds as much once more
		// (measured on two H200s with torch 2.11: 8 bytes a parameter in fp32 when loaded, 20 in
		// the forward of the second step).
		s.weights += s.gradients
		s.optimizer += s.gradients
	}
	if p.OffloadOptimizer == "cpu" {
		// torchao's CPUOffloadOptimizer: weights, gradients and states on the host too.
		s.host = s.gradients*2 + s.optimizer
		s.pinned, s.optimizer, s.step = s.gradients*2, 0, 0
	}
	return s
}

// optimizer is the bytes of an optimizer's state for weights of a plan's dtype: as measured if
// that ran, or else by its kind.
func (f *Predictor) optimizer(p RankPlan) float64 {
	for _, s := range f.sights {
		if s.states > 0 && s.plan.Optimizer == p.Optimizer && s.plan.Weights == p.Weights && unsharded(s.plan) {
			return s.states
		}
	}
	trained := float64(f.model.Trainable)
	return trained * perParameter(f.named(p), width(p.Weights), float64(f.model.Embedding)/math.Max(trained, 1))
}

// named is the optimizer's name: the observed class if the plan has none.
func (f *Predictor) named(p RankPlan) string {
	if p.Optimizer != "" {
		return p.Optimizer
	}
	for _, s := range f.sights {
		if s.plan.Optimizer == "" && s.class != "" {
			return s.class
		}
	}
	return ""
}

// perParameter is the bytes of state for a parameter of a width. SGD counts with a momentum,
// which it may lack, so that a doubt does not lead to an out-of-memory error.
func perParameter(optimizer string, width, embedding float64) float64 {
	o := optimizerOf(optimizer)
	if o.name == "sgd" {
		return width
	}
	return o.states(width, embedding)
}

// foreach reports whether the optimizer's step needs intermediates as large as the weights.
// PyTorch uses foreach on a GPU by default; a measurement decides.
func (f *Predictor) foreach(p RankPlan) bool {
	name := f.named(p)
	if o := optimizerOf(name); o.embeddings || o.name == "adafactor" || strings.Contains(strings.ToLower(name), "fused") {
		return false
	}
	for _, s := range f.sights {
		if s.plan.Optimizer == p.Optimizer && s.optimizerSeen {
			return s.foreach
		}
	}
	return true
}

// unsharded reports whether a rank holds all of the model's states.
func unsharded(p RankPlan) bool {
	return !p.DeepSpeed && (p.Sharding == "" || p.Sharding == "none")
}

// fsdp divides the states; two blocks' parameters are gathered at a time, and those outside the
// blocks from the forward to the backward.
func (f *Predictor) fsdp(p RankPlan, s *states) {
	n := float64(max(p.DataParallel, 1))
	block, compute := f.largestBlock(), width(p.Compute)
	s.weights = (s.weights-float64(f.model.Buffers))/n + float64(f.model.Buffers)
	s.gather = compute * (2*block + float64(f.model.Outside))
	s.bucket = compute * block
	s.gradients, s.held, s.optimizer, s.step = s.gradients/n, s.gradients/n, s.optimizer/n, s.step/n
	s.sharded = true
	if p.OffloadParam == "cpu" || p.OffloadOptimizer == "cpu" { // all or nothing
		s.host = s.weights + s.gradients + s.optimizer
		s.pinned = s.weights + s.gradients
		s.weights, s.gradients, s.held, s.optimizer, s.step = 0, 0, 0, 0, 0
	}
}

// largestBlock is the number of parameters of the largest block of all lists.
func (f *Predictor) largestBlock() float64 {
	most := 0.
	for _, l := range f.model.Blocks {
		if l.Count > 0 {
			most = math.Max(most, float64(l.Parameters)/float64(l.Count))
		}
	}
	if most == 0 {
		most = float64(f.model.Parameters) / 12
	}
	return math.Max(most, float64(f.model.Largest))
}

// deepSpeed returns the states of DeepSpeed's engine: weights and gradients in the dtype of the
// computation, a master copy and Adam's moments in fp32, by ZeRO stage (frameworks:
// runtime/zero/stage_1_and_2.py, stage3.py, runtime/bf16_optimizer.py; the times were measured on
// one H200 with DeepSpeed 0.19.8).
func (f *Predictor) deepSpeed(p RankPlan) states {
	n := float64(max(p.DataParallel, 1))
	all, trained, w := float64(f.model.Parameters), float64(f.model.Trainable), width(p.Compute)
	p.DeepSpeed = true
	master := RateOf(p.Usual()).Master
	stage := p.Sharding
	if stage != "zero1" && stage != "zero2" && stage != "zero3" {
		n, stage = 1, ""
	}
	own := trained / n
	s := states{sharded: true, weights: w * all, gradients: w * trained, load: 2 * w * trained}
	s.optimizer = own * (master + perParameter(f.named(p), 4, 0))
	s.early = own * master // the moments come with the first step
	// At the step the partition's gradients are averaged, made one tensor, and made fp32.
	s.step = (w + 4) * own
	switch stage {
	case "":
		s.early, s.step = s.optimizer, 4*own
	case "zero1":
		s.ready, s.bucket = w*reduceBucket, w*math.Min(trained, reduceBucket)
		s.forming = s.ready // the bucket of the last micro batch stays
	case "zero2":
		s.gradients /= n
		// Gradients are copied into one bucket, which is made with the first of them. Once it is
		// full, it is copied for the reduction.
		s.ready, s.bucket = w*reduceBucket, w*math.Min(trained, reduceBucket)
	case "zero3":
		// A buffer for the partition's gradients and the bucket exist from the start.
		s.weights = 2*w*all/n + w*reduceBucket
		s.gradients, s.load = 0, 0
		s.step = (w + 4) * math.Min(own, subGroup)
		if n > 1 || elsewhere(p.OffloadParam) {
			s.gather = w * math.Min(all, math.Max(liveParameters+prefetchBucket, f.largestBlock()))
		}
	}
	s.held = s.gradients
	f.offload(p, own, w, &s)
	s.weights += float64(f.model.Buffers)
	return s
}

// elsewhere reports whether a part is held in another memory than the device's.
func elsewhere(to string) bool { return to == "cpu" || to == "nvme" }

// offload moves DeepSpeed's optimizer and, at stage 3, its parameters to the host or to NVMe. own
// is the number of parameters of the rank's partition. The host's figures have DeepSpeed's own
// factor of 1.5 for buffers (estimate_zero3_model_states_mem_needs). The pinned bytes, NVMe's and
// those that leave the device were measured on two H200s with torch 2.11 and DeepSpeed 0.19.8.
func (f *Predictor) offload(p RankPlan, own, w float64, s *states) {
	if elsewhere(p.OffloadOptimizer) {
		f.offloadOptimizer(p, own, w, s)
	}
	if p.Sharding != "zero3" {
		return
	}
	switch p.OffloadParam {
	case "cpu":
		s.host += hostSlack * w * own
		s.pinned += 2 * pinned(w*own) // flat, and each parameter's own, which is rounded by itself
		s.weights -= w * own
	case "nvme":
		s.nvme += w * own
		s.host += 5*1e8*w + w*math.Min(own, 1e9) // five buffers, and max_in_cpu (DeepSpeed's defaults)
		s.pinned += 5 * 1e8 * w
		s.weights -= w * own
	}
}

// offloadOptimizer moves master copy, states and gradients. Below stage 3 a buffer as large as
// the largest parameter's gradient stays on the device, from the start.
func (f *Predictor) offloadOptimizer(p RankPlan, own, w float64, s *states) {
	s.step, s.early = 0, 0
	switch p.Sharding {
	case "zero3":
		s.weights -= w * own // the partition's gradients
	case "zero1", "zero2":
		s.weights += w * float64(f.model.Largest)
		s.pinned = pinned(4*own) + pinned(w*float64(f.model.Largest))
		s.gradients = 0 // the bucket's go to the host after its reduction
	}
	if p.Sharding != "zero1" { // the partition's gradients go with the optimizer, at its step
		s.held = 0
	}
	if p.OffloadOptimizer == "cpu" {
		s.host = hostSlack * (s.optimizer + 4*own)
		s.pinned += pinned(4*own) + pinned(w*own)
		s.pinnedMore = pinned(w * own)
	} else {
		// Four tensors of a sub-group are in asynchronous I/O's own pinned buffers, gradients
		// and weights in PyTorch's.
		group := 4 * math.Min(own, subGroup)
		s.nvme = s.optimizer + 4*own
		s.pinned += 4*group + 2*pinned(group) + pinned(w*own)
		s.host = 4*group + 2*group + w*own
	}
	s.optimizer = 0
}

// pinned is the host memory for a number of pinned bytes: the next power of two (PyTorch's
// CachingHostAllocator).
func pinned(bytes float64) float64 {
	if bytes <= 0 {
		return 0
	}
	return math.Exp2(math.Ceil(math.Log2(bytes)))
}

// Bytes that a process holds on a GPU outside its allocator, if the driver does not report them:
// in a container it may not know a process by its number. A context with its libraries took .74
// GiB on an H200 with torch 2.11, two ranks with NCCL or DeepSpeed up to 2.04 (1.29 with
// DeepSpeed alone, 1.67 once ZeRO-3 ran; testdata/h200-deepspeed.jsonl). Published are .3–.6 for
// a context on smaller GPUs and 1.5 for NCCL.
const (
	outsideAlone    = 0.75 * (1 << 30)
	outsideTogether = 2.05 * (1 << 30)
)

// outsidePrior is the assumed number of bytes that a process holds outside its allocator under a
// plan.
func outsidePrior(p RankPlan) float64 {
	if p.DataParallel > 1 || p.DeepSpeed || p.Sharding == "fsdp" || strings.HasPrefix(p.Sharding, "zero") {
		return outsideTogether
	}
	return outsideAlone
}

// heldOutside is the number of bytes that the process holds outside its allocator under a plan:
// the driver's report, and the addition of more ranks than at that time. It is 0 if a ceiling
// below the device's memory limits the allocator: that leaves the rest to others.
func (f *Predictor) heldOutside(p RankPlan) float64 {
	switch held := f.device.Allowed > 0 && (f.device.Total == 0 || f.device.Allowed < f.device.Total); {
	case f.device.CPU:
		return f.outside
	case f.outside > 0:
		return f.outside + math.Max(outsidePrior(p)-f.outsideSeen, 0)
	case held:
		return 0
	}
	return outsidePrior(p)
}

// learnOutside reads the driver's report about a process.
func (f *Predictor) learnOutside(s Measurement) {
	if s.Doubt > 0 || s.Outside <= 0 {
		return
	}
	f.outside = math.Max(f.outside, float64(s.Outside))
	f.outsideSeen = math.Max(f.outsideSeen, outsidePrior(s.Plan))
}

// outsideOf is the number of bytes that a process held outside its allocator when it was
// measured.
func (f *Predictor) outsideOf(s Measurement) float64 {
	if s.Outside > 0 || s.Total == 0 || f.device.CPU {
		return float64(s.Outside)
	}
	return outsidePrior(s.Plan)
}
