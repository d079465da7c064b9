package memory

import (
	"math"
	"strings"
)

// A Breakdown divides the bytes that a rank's allocator held in one phase by their use. The
// figures add up to the measured sum.
type Breakdown struct {
	// Instant is load, forward, loss, backward, optimizer or evaluation: the phase in which
	// memory ran out, or else the phase of the highest peak.
	Instant string `json:"instant"`
	// Weights includes the 16-bit copies that autocast makes; Gradients the buckets of
	// DistributedDataParallel; Other the bytes held before the model, the buckets of DeepSpeed,
	// and the temporary bytes of the optimizer's step.
	Weights     int64 `json:"weights"`
	Gradients   int64 `json:"gradients"`
	Optimizer   int64 `json:"optimizer"`
	Activations int64 `json:"activations"`
	Other       int64 `json:"other"`
	// Requested is the size of the failed allocation, if memory ran out.
	Requested int64 `json:"requested,omitempty"`
}

// Held is the sum, without the failed allocation.
func (b Breakdown) Held() int64 {
	return b.Weights + b.Gradients + b.Optimizer + b.Activations + b.Other
}

// Breakdown divides the bytes held in the phase in which memory ran out, or else at the
// highest known peak of a phase; false: too little was measured. The sum is
// measured. The parts are the plan's states by the formulas of this package, subtracted
// one after the other, each at most the rest of the sum:
//
//	Weights      parameters × width, and buffers; in the forward autocast's copies of the
//	             blocks that were reached, later those that are still held
//	Other        the bytes held at the first call in addition to the model's states
//	Optimizer    none in the first step's forward and backward, as measured or formula after
//	             it; under DeepSpeed the master copy from the start on
//	Gradients    none in the forward, except those that an earlier call of the step left or that
//	             linger; all in the optimizer's step; in the backward see inBackward
//	Activations  the rest, in the optimizer's step and while loading Other
func (m Measurement) Breakdown() (Breakdown, bool) {
	at := m.moment()
	if at.held <= 0 || at.held > mostHeld || m.Model == nil || m.Model.Parameters <= 0 {
		return Breakdown{}, false
	}
	f := NewPredictor(*m.Model, DeviceMemory{}, []Measurement{m})
	return f.divide(m, at), true
}

// mostHeld is more than any device has, and few enough bytes for a float to count.
const mostHeld = 1 << 50

// A peakMoment is a phase of a measurement.
type peakMoment struct {
	instant string
	held    int64
	// stepped: the optimizer's state exists; later: gradients of an earlier call of the same step
	// exist.
	stepped, later bool
	// forward is the bytes held when the forward before it had ended, 0: unknown.
	forward int64
}

// moment returns the phase that counts: that of the failure, or else that of the highest peak.
func (m Measurement) moment() peakMoment {
	if m.Failed != "" {
		at := peakMoment{instant: m.Failed, held: m.Allocated, stepped: m.First.After > 0}
		step := m.First
		if at.stepped {
			step = m.Second
		}
		at.forward = step.Forward
		at.later = (at.instant == "forward" || at.instant == "loss") && step.Forward > 0 && step.After == 0 &&
			m.Calls > m.together()
		return at
	}
	best := peakMoment{instant: "evaluation", held: m.Evaluation, stepped: m.First.After > 0}
	for i, s := range []StepMemory{m.First, m.Second, m.Longer} {
		for _, at := range []peakMoment{
			{"forward", s.ForwardPeak, i > 0, false, 0},
			{"forward", s.LaterPeak, i > 0, true, 0},
			{"backward", max(s.BackwardPeak, s.Micro), i > 0, false, s.Forward},
			{"optimizer", s.OptimizerPeak, true, false, 0},
		} {
			if at.held > best.held {
				best = at
			}
		}
	}
	return best
}

// A purse divides the bytes that were held, and never gives more than is left.
type purse struct{ left float64 }

func (p *purse) take(bytes float64) float64 {
	bytes = math.Min(math.Max(bytes, 0), p.left)
	p.left -= bytes
	return bytes
}

// divide splits the bytes that were held at a peak.
func (f *Predictor) divide(m Measurement, at peakMoment) Breakdown {
	st := f.states(m.Plan)
	buckets := st.again // states counts them with weights and optimizer
	st.weights, st.optimizer = st.weights-buckets, st.optimizer-buckets
	early, base := st.early, float64(m.Start)-st.weights-st.early-buckets
	if !m.Plan.DeepSpeed && f.hasState(m.Plan) && m.resumed(st.optimizer, base) { // a resumed run has loaded it
		early, base = st.optimizer, base-st.optimizer
	}
	if m.Start == 0 {
		base = 0
	}
	p := purse{float64(at.held)}
	weights := p.take(st.weights + f.copiesAt(m, at.instant))
	other := p.take(base)
	optimizer := p.take(early)
	if at.stepped {
		optimizer += p.take(st.optimizer - early)
	}
	gradients := p.take(buckets)
	if at.stepped && at.instant != "optimizer" {
		gradients += p.take(buckets) // made again in the second step
	}
	switch lingers := m.Linger && at.stepped && at.instant != "evaluation"; {
	case at.instant == "optimizer":
		gradients += p.take(st.gradients)
		other += p.take(p.left)
	case at.instant == "load":
		other += p.take(p.left)
	case at.instant == "backward":
		gradients += f.inBackward(m, at, st, &p, &other)
	case at.later || lingers:
		gradients += p.take(st.held)
	}
	b := Breakdown{Instant: at.instant, Weights: whole(weights), Gradients: whole(gradients), Optimizer: whole(optimizer),
		Other: whole(other)}
	b.Activations = at.held - b.Held()
	if b.Activations < 8 { // a rest of rounding
		b.Other, b.Activations = b.Other+b.Activations, 0
	}
	if m.Failed != "" {
		b.Requested = m.Requested
	}
	return b
}

// hasState reports whether an optimizer certainly keeps a state. SGD does so only with a
// momentum, which is not known before a step was measured; nor is the state of an optimizer
// without a name.
func (f *Predictor) hasState(p RankPlan) bool {
	for _, s := range f.sights {
		if s.states > 0 {
			return true
		}
	}
	name := strings.ToLower(f.named(p))
	return name != "" && !strings.Contains(name, "sgd")
}

// copiesAt is the bytes of autocast's 16-bit weights: in a forward that ended early, those of the
// blocks that had begun.
func (f *Predictor) copiesAt(m Measurement, instant string) float64 {
	plan := m.Plan
	plan.Compute = computeOf(m)
	held, most := f.copies(plan)
	switch {
	case instant == "load" || instant == "optimizer":
		return 0
	case instant != "forward":
		return held
	}
	begun, count := 0, 0
	for _, l := range m.Marks {
		begun += len(l.Bytes)
	}
	for _, b := range m.Model.Blocks {
		count += b.Count
	}
	if m.Failed == "" || count == 0 {
		return most
	}
	return most * math.Min(float64(begun)/float64(count), 1)
}

// inBackward divides the rest in a backward pass. The pass begins with the activations A
// that the forward left and no gradient, and ends with all gradients G and no activation;
// in between both are assumed to change in proportion. The rest, R, then shows the progress:
//
//	R between A and G   gradients (A − R) ÷ (A − G) of G, activations the rest
//	R above A ≥ G       the beginning: none; beyond A lie DeepSpeed's buckets
//	R above G > A       the end: all
func (f *Predictor) inBackward(m Measurement, at peakMoment, st states, p *purse, other *float64) float64 {
	held, _ := f.copies(m.Plan)
	before := float64(m.Start)
	if at.stepped {
		before += st.optimizer - st.early
	}
	a, g, rest := math.Max(float64(at.forward)-before-held, 0), st.gradients, p.left
	switch {
	case m.Linger && at.stepped && rest >= g: // the loss is made outside the model, before they go
		return p.take(g)
	case rest >= a && a >= g:
		*other += p.take(math.Min(st.ready, rest-a))
		return 0
	case a > g:
		return p.take(math.Min((a-rest)/(a-g), 1) * g)
	}
	return p.take(math.Min(math.Max(rest-a, 0)/math.Max(g-a, 1), 1) * g)
}
