package memory

import (
	"math"
	"strings"
)

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

// StatesOnHost is the OffloadOptimizer of a plan in which the process itself keeps the optimizer's states in host
// memory, and the device computes the step.
const StatesOnHost = "states"

// visitingBytes are the buffers through which such states visit the device during a step: three of 256 MiB.
const visitingBytes = 3 << 28

// states returns the states of a plan, by its optimizer, its sharding and its offload.
func (f *Predictor) states(p RankPlan) states {
	all, trained, buffers := float64(f.model.Parameters), float64(f.model.Trainable), float64(f.model.Buffers)
	whole := states{weights: f.weights(p) - buffers, gradients: trained * width(p.Weights)}
	p.DeepSpeed = p.DeepSpeed || strings.HasPrefix(p.Sharding, "zero")
	r := RateOf(p.Usual())
	if p.DeepSpeed {
		whole = states{weights: r.Weights * all, gradients: r.Gradients * trained,
			optimizer: trained * perParameter(f.named(p), 4, 0)}
	} else {
		whole.optimizer = f.optimizer(p)
	}
	switch {
	case f.foreach(p):
		whole.step = whole.gradients // intermediates as large as the parameters (torch.optim's documentation)
	case unsharded(p) && !fused(f.named(p)):
		whole.step = optimizerOf(f.named(p)).single * float64(f.model.Largest) * width(p.Weights)
	}
	block, outside := f.largestBlock(), float64(f.model.Outside)
	if p.Sharding == "fsdp" && f.model.UnitOutermost+f.model.UnitLargest > 0 {
		block, outside = float64(f.model.UnitLargest), float64(f.model.UnitOutermost)
	}
	s := whole.on(parameterCounts{all, trained, float64(f.model.Largest), block, outside}, p.Usual())
	switch {
	case p.OffloadOptimizer == StatesOnHost:
		s.host, s.pinned = s.optimizer, s.optimizer
		s.step = math.Min(s.optimizer, visitingBytes) + math.Min(s.step, visitingBytes)
		s.optimizer, s.again = 0, 0
	case p.DeepSpeed && stage(p) == 3:
		s.weights, s.gradients, s.held = s.weights+s.gradients, 0, 0
	case !p.DeepSpeed && p.OffloadOptimizer == "cpu" && p.Sharding != "fsdp":
		// torchao's CPUOffloadOptimizer: weights, gradients and states on the host too.
		s.host = s.gradients*2 + s.optimizer
		s.pinned, s.optimizer, s.step = s.gradients*2, 0, 0
	}
	s.weights += s.buffer + buffers
	s.optimizer += s.again
	return s
}

// optimizer is the bytes of an optimizer's state for weights of a plan's dtype: as measured if
// that ran, or else by its kind.
func (f *Predictor) optimizer(p RankPlan) float64 {
	for _, s := range f.sights {
		if (s.states > 0 || s.stateless) && s.plan.Optimizer == p.Optimizer && s.plan.Weights == p.Weights &&
			unsharded(s.plan) {
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
	if o := optimizerOf(name); o.embeddings || o.name == "adafactor" || fused(name) {
		return false
	}
	for _, s := range f.sights {
		if s.plan.Optimizer == p.Optimizer && s.optimizerSeen {
			return s.foreach
		}
	}
	return true
}

// fused reports whether an optimizer's step is one kernel, without intermediates.
func fused(optimizer string) bool { return strings.Contains(strings.ToLower(optimizer), "fused") }

// unsharded reports whether a rank holds all of the model's states.
func unsharded(p RankPlan) bool {
	return !p.DeepSpeed && (p.Sharding == "" || p.Sharding == "none")
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
	if p.DataParallel > 1 || p.DeepSpeed || stage(p) > 0 {
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
	if s.Outside <= 0 {
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
