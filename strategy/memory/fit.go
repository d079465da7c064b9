package memory

import (
	"cmp"
	"math"
	"slices"
)

// A Predictor predicts the needs of a job's plans from the job's measurements. It caches its
// results for each mode, and is not safe for concurrent use.
type Predictor struct {
	model   TrainedModel
	device  DeviceMemory
	outside float64 // bytes of the device that the process holds outside its allocator, as measured
	// outsideSeen is the prior of outside under the measured plans.
	outsideSeen float64
	base        float64 // bytes of the allocator at the first call in addition to weights and states
	unknown     string
	sights      []sight
	anchors     []anchor
	timings     []timing
	launches    []launching
	host        float64 // resident bytes of a process without what offload adds
	linger      bool    // a step's gradients are held until after the next one's forward
	kept        bool    // gradients are set to zero, and held in all phases
	together    bool    // the model is called several times for one loss
	twice       bool    // the job differentiates twice
	wider       float64 // by how much bounds of this job were too low
	words       float64 // elements of a sample, if the input is numbers of words
	longest     float64 // elements of the longest input for each sample, over all that was seen
	shapes      map[RankPlan]*modePeaks
	lastPlan    RankPlan
	last        *modePeaks
}

// An anchor is a measured peak: exact if the plan trained, a lower bound if it failed.
type anchor struct {
	mode     RankPlan // without its batches
	micro    float64
	multiple bool // more than one micro batch in a step
	bytes    float64
	instant  string
	failed   bool
	held     float64 // the bytes held and requested when it failed
	// evaluation is the number of samples in the evaluation call that ran out of memory.
	evaluation int
}

// A timing is an observed step time, in seconds.
type timing struct {
	plan    RankPlan
	seconds float64
}

// A launching is the measured times of a plan's launches.
type launching struct {
	plan RankPlan
	Launch
}

// NewPredictor reads measurements of a job on a device, in any order. The model may be the zero
// value if a measurement has it.
func NewPredictor(m TrainedModel, d DeviceMemory, seen []Measurement) *Predictor {
	f := &Predictor{model: m, device: d, shapes: map[RankPlan]*modePeaks{}}
	for _, s := range seen {
		if f.model.Parameters == 0 && s.Model != nil {
			f.model = *s.Model
		}
	}
	if f.model.Parameters <= 0 {
		f.unknown = "the number of the model's parameters is not known"
		return f
	}
	if f.model.Trainable == 0 {
		f.model.Trainable = f.model.Parameters
	}
	for _, s := range seen {
		f.longest, f.linger, f.twice = max(f.longest, longestOf(s)), f.linger || s.Linger, f.twice || s.Twice != ""
		f.kept, f.together = f.kept || s.Kept, f.together || s.Together > 1
	}
	for _, s := range seen {
		if len(s.Shape) == 2 && f.model.Embedding > 0 {
			f.words = max(f.words, float64(s.Shape[1]))
		}
	}
	for _, s := range seen {
		f.read(s)
	}
	slices.SortStableFunc(f.sights, func(a, b sight) int { return cmp.Compare(b.rank(), a.rank()) })
	return f
}

// WithoutFailures returns a predictor for which a plan that ran out of memory needs only what it
// held and requested, instead of more than the device has.
func (f *Predictor) WithoutFailures() *Predictor {
	g := *f
	g.anchors = slices.Clone(f.anchors)
	for i := range g.anchors {
		if a := &g.anchors[i]; a.failed {
			a.bytes = a.held
		}
	}
	g.shapes, g.last = map[RankPlan]*modePeaks{}, nil
	return &g
}

// Widen widens all bounds by one that was too low: a plan that ran, its bound, and the peak that it
// needed at least. What is counted, such as weights and states, is exact.
func (f *Predictor) Widen(p RankPlan, bound, peak int64) {
	if f.unknown != "" || peak <= bound {
		return
	}
	s := f.shape(&p)
	counted := s.base + s.states.weights + s.states.optimizer
	if rest := float64(bound) - counted; s.unknown == "" && rest > 0 {
		f.wider = math.Max(f.wider, math.Min((float64(peak)-counted)/rest, mostWider))
		f.shapes, f.last = map[RankPlan]*modePeaks{}, nil
	}
}

// mostWider bounds the factor by which bounds are widened.
const mostWider = 4

// Unknown is the reason why no plan can be predicted; empty if some can.
func (f *Predictor) Unknown() string { return f.unknown }

// read reads one measurement.
func (f *Predictor) read(s Measurement) {
	f.learnOutside(s)
	if f.host = max(f.host, float64(s.Host)); f.device.CPU {
		f.host = 0
	}
	if s.Batch == 0 {
		s.Batch = s.Plan.MicroBatch
	}
	if s.Start > 0 {
		f.base = max(f.base, f.unexplained(s))
	}
	// Parts of a batch hold nothing for a backward until it comes to them: their marks show no
	// activations.
	if sight, ok := f.sight(s); ok && s.Plan.ForwardParts < 2 {
		f.sights = append(f.sights, sight)
	}
	if a, ok := f.anchor(s); ok {
		f.anchors = append(f.anchors, a)
	}
	// Parts of a batch are launched one by one.
	if s.Launch.Forward > 0 && s.Plan.ForwardParts < 2 {
		s.Plan.Compute = computeOf(s)
		f.launches = append(f.launches, launching{s.Plan, s.Launch})
	}
	if s.Failed == "" && s.StepSeconds > 0 {
		f.timings = append(f.timings, timing{s.Plan, s.StepSeconds})
	}
}

// unexplained is the bytes held at the first call that do not belong to the plan's states.
func (f *Predictor) unexplained(s Measurement) float64 {
	st := f.states(s.Plan)
	extra, own := float64(s.Start)-st.weights, 0.
	if f.device.CPU {
		own = processData
	}
	// in the first step, all that there are
	made := float64(s.First.After-s.First.Before) > .5*st.optimizer || f.stateless(s)
	if s.Plan.DeepSpeed || !made && s.resumed(st.optimizer, extra-own) {
		extra -= st.optimizer // DeepSpeed's are made with the engine; a resumed run's are loaded
	}
	if s.Others > 0 { // another model's gradients and states come later
		grown := float64(s.Others) * (st.gradients + st.optimizer) / math.Max(st.weights, 1)
		if s.First.After > 0 && s.Second.After > 0 {
			grown = float64(s.Second.After - s.First.After)
		}
		extra += math.Max(grown, 0)
	}
	return math.Max(extra, 0)
}

// anchor returns the peak of the plan that a measurement ran with.
func (f *Predictor) anchor(s Measurement) (anchor, bool) {
	a := anchor{mode: modeOf(s.Plan), micro: float64(s.Batch), multiple: s.Plan.Accumulation > 1}
	if s.Plan.MicroBatch > 0 {
		a.micro = float64(s.Plan.MicroBatch)
	}
	if s.Failed != "" {
		a.failed, a.instant = true, s.Failed
		limit := float64(s.Allowed)
		if limit == 0 {
			limit = float64(s.Total) - f.outsideOf(s)
		}
		if limit <= 0 {
			limit = float64(s.Allocated + s.Requested)
		}
		if s.Failed == "evaluation" {
			a.evaluation = max(s.EvaluationBatch, s.Plan.Evaluation, 1)
		}
		// A failed plan needs more than the allowed memory: by at least 2 %, so that a plan that
		// is hardly smaller is not next; and at least what it held and requested.
		a.held = float64(s.Allocated + s.Requested)
		a.bytes = max(censored*limit, a.held)
		return a, a.bytes > 0
	}
	if s.Second.OptimizerPeak == 0 && s.Steps < 2 || f.stretch(s) > 1 && s.Longer.Longest == 0 {
		return a, false // it did not reach its peak, or another rank has longer inputs
	}
	a.bytes = float64(s.stepPeak())
	if s.Steps >= 2 && s.Evaluation == 0 {
		a.bytes = math.Max(a.bytes, float64(s.Peak))
	}
	return a, a.bytes > 0
}

// censored is the least need of a plan that ran out of memory, as a factor on the allowed memory.
const censored = 1.02

// modeOf is a plan without its batches and its allocator.
func modeOf(p RankPlan) RankPlan {
	p.MicroBatch, p.Accumulation, p.Evaluation, p.Allocator = 0, 0, 0, ""
	return p
}

// Room is the number of bytes that the allocator may give out on the device under a plan: its
// Capacity less the allocator's overhead, which differs between its two kinds. On the CPU, what a
// process held before the model has no overhead: it was there, and is not freed.
func (f *Predictor) Room(p RankPlan) int64 {
	capacity := f.capacity(p)
	sure := f.sure(capacity)
	least, _ := f.overhead(p)
	return int64(sure + (capacity-sure)/least)
}

// Capacity is the number of bytes that the allocator may hold on the device with a plan: its limit,
// or the memory that is free of other processes and of the process's own use outside the allocator.
// Users know this figure: a ceiling, or the free memory of a card. 0: not known.
func (f *Predictor) Capacity(p RankPlan) int64 { return int64(f.capacity(p) + .5) }

func (f *Predictor) capacity(p RankPlan) float64 {
	room := float64(f.device.Total-f.device.Others) - f.heldOutside(p)
	if f.device.Total == 0 {
		room = math.Inf(1)
	}
	if f.device.Allowed > 0 {
		room = math.Min(room, float64(f.device.Allowed))
	}
	if math.IsInf(room, 1) || room <= 0 {
		return 0
	}
	return room
}

// sure is the part of a number of bytes in which the allocator has no overhead.
func (f *Predictor) sure(bytes float64) float64 {
	if !f.device.CPU {
		return 0
	}
	return math.Min(f.base, bytes)
}

// Suffices is the limit of the allocator that is certain to do for a plan which allocates so many
// bytes at its peak.
func (f *Predictor) Suffices(p RankPlan, peak int64) int64 {
	_, most := f.overhead(p)
	sure := f.sure(float64(peak))
	return whole(sure + most*(float64(peak)-sure))
}

// Outside is the number of bytes that a process holds outside its allocator under a plan, without
// regard to a ceiling.
func (f *Predictor) Outside(p RankPlan) int64 {
	if f.outside == 0 && !f.device.CPU {
		return whole(outsidePrior(p))
	}
	return whole(f.heldOutside(p))
}

// overhead is the least and the most memory under which the allocator can give out a byte.
func (f *Predictor) overhead(p RankPlan) (least, most float64) {
	switch {
	case f.device.CPU:
		return hostRoom, hostRoom
	case p.Allocator == "expandable":
		return expandableRoom, expandableMost
	}
	return defaultRoom, defaultMost
}
