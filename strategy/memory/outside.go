package memory

import (
	"math"
	"strings"
)

// Bytes that a process holds on a GPU outside its allocator, where the driver does not report
// them: in a container it may not know a process by its number. A context with its libraries took
// .74 GiB on an H200 with torch 2.11, two ranks with NCCL or DeepSpeed up to 2.04 (1.29 with
// DeepSpeed alone, 1.67 once ZeRO-3 ran; testdata/h200-deepspeed.jsonl). Published are .3–.6 for
// a context on smaller GPUs and 1.5 for NCCL.
const (
	outsideAlone    = 0.75 * (1 << 30)
	outsideTogether = 2.05 * (1 << 30)
)

// outsidePrior is what a process is believed to hold outside its allocator under a plan.
func outsidePrior(p RankPlan) float64 {
	if p.DataParallel > 1 || p.DeepSpeed || p.Sharding == "fsdp" || strings.HasPrefix(p.Sharding, "zero") {
		return outsideTogether
	}
	return outsideAlone
}

// heldOutside is what the process holds outside its allocator under a plan: as the driver
// reported it, and what more ranks than at that time add. It is 0 where a ceiling below the
// device's memory limits the allocator: that leaves the rest to others.
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

// learnOutside reads what the driver reported of a process.
func (f *Predictor) learnOutside(s Measurement) {
	if s.Doubt > 0 || s.Outside <= 0 {
		return
	}
	f.outside = math.Max(f.outside, float64(s.Outside))
	f.outsideSeen = math.Max(f.outsideSeen, outsidePrior(s.Plan))
}

// outsideOf is what a process held outside its allocator when it was measured.
func (f *Predictor) outsideOf(s Measurement) float64 {
	if s.Outside > 0 || s.Total == 0 || f.device.CPU {
		return float64(s.Outside)
	}
	return outsidePrior(s.Plan)
}
