package strategy

import (
	"fmt"
	"strings"

	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/strategy/memory"
)

// A Price is what a change of the plan saved and cost: figures of the attempt before it and
// of the one that it led to. Bytes are of the device's allocator, of the rank that needed
// the most; a zero is not known.
type Price struct {
	Rungs   []Rung  `json:"rungs"`
	Changed Changes `json:"changed"`
	// BytesBefore is what the plan before needed at its peak: as it was measured, else at
	// least what it held and asked for when memory ran out. AtLeast says that it is that.
	BytesBefore int64 `json:"bytes_before,omitempty"`
	BytesAfter  int64 `json:"bytes_after,omitempty"`
	AtLeast     bool  `json:"at_least,omitempty"`
	// PredictedBefore and PredictedAfter are what the planner says, by all that the run has
	// measured, where the plan ran out of memory before its peak was seen.
	PredictedBefore int64 `json:"predicted_bytes_before,omitempty"`
	PredictedAfter  int64 `json:"predicted_bytes_after,omitempty"`
	// SecondsBefore and SecondsAfter are the times of an optimizer step for the same global
	// batch. Estimated says that the one before was never measured, but follows from the one
	// after by what the planner knows of such plans.
	SecondsBefore float64 `json:"step_seconds_before,omitempty"`
	SecondsAfter  float64 `json:"step_seconds_after,omitempty"`
	Estimated     bool    `json:"estimated,omitempty"`
}

// Prices says of each attempt of a history what the change that led to it saved and cost;
// nil where nothing was changed, or nothing is known of both sides. An attempt that is
// still to come may tell more of those before it.
func Prices(j Job, history []Attempt, inv Inventory) []*Price {
	prices := make([]*Price, len(history))
	if len(history) < 2 {
		return prices
	}
	s := &situation{job: j, inventory: inv}
	s.look(ran(history))
	shop := pricing{s: s}
	shop.fit, shop.translate, shop.unknown = s.fitted()
	before := -1
	for i, a := range history {
		if a.Unstarted != nil {
			continue
		}
		if before >= 0 {
			prices[i] = shop.price(history[before], a)
		}
		before = i
	}
	return prices
}

// A pricing is what prices rest on.
type pricing struct {
	s         *situation
	fit       *memory.Predictor
	translate translator
	unknown   string // why the planner predicts nothing; empty: it does
}

// price is that of what changed between two attempts.
func (c *pricing) price(a, b Attempt) *Price {
	from, to := c.s.job.used(a), c.s.job.used(b)
	changed := a.Plan.Using(c.s.job.Ineffective(a.Plan, a.Observed)).Changed(b.Plan.Using(c.s.job.Ineffective(b.Plan, b.Observed)))
	_, allocator := changed[Allocator]
	switch {
	case len(changed) == 0, len(changed) == 1 && allocator: // that wastes less, and needs as much
		return nil
	case a.Diagnosis.Cause == cause.HostOOM && a.Diagnosis.Device != "cpu": // the host's memory is another
		return nil
	}
	p := &Price{Rungs: rungsOf(changed), Changed: changed}
	if p.Rungs == nil {
		p.Rungs = []Rung{}
	}
	if p.BytesBefore = reached(a); p.BytesBefore == 0 {
		p.BytesBefore = held(a)
		p.AtLeast = p.BytesBefore > 0
		p.PredictedBefore = c.predict(from).Mean
	}
	if p.BytesAfter = reached(b); p.BytesAfter == 0 {
		p.PredictedAfter = c.predict(to).Mean
	}
	c.time(p, a, b)
	if _, _, known := p.bytes(); !known && p.SecondsBefore == 0 {
		return nil
	}
	return p
}

// rungsOf are the rungs of some changes: what a process only told of its plan is none.
func rungsOf(changed Changes) []Rung {
	from, to := Plan{}, Plan{}
	for k, pair := range changed {
		from[k], to[k] = pair[0], pair[1]
	}
	return needs(from, to)
}

// time adds the times of a step, for the global batch that was before.
func (c *pricing) time(p *Price, a, b Attempt) {
	before, samples := c.s.job.stepOf(a)
	after, also := c.s.job.stepOf(b)
	if after == 0 {
		return
	}
	from, to := c.s.job.used(a), c.s.job.used(b)
	if samples == 0 {
		samples = also
	}
	after *= samples / also
	if before == 0 {
		x, y := c.predict(from).Seconds, c.predict(to).Seconds
		if x == 0 || y == 0 {
			return
		}
		before, p.Estimated = after*x/y, true
	}
	p.SecondsBefore, p.SecondsAfter = before, after
}

// predict is what the planner says of a plan; zero where it says nothing.
func (c *pricing) predict(p Plan) memory.Prediction {
	if c.unknown != "" {
		return memory.Prediction{}
	}
	out := c.fit.Predict(c.translate.memory(p))
	if out.Unknown != "" {
		return memory.Prediction{}
	}
	return out
}

// reached is the most that a rank of an attempt held that took its steps, 0 for another.
func reached(a Attempt) (peak int64) {
	for _, m := range a.Measured {
		if m.Failed != "" {
			return 0
		}
		if m.Steps > 1 {
			peak = max(peak, m.Peak)
		}
	}
	return peak
}

// held is what an attempt held and asked for when memory ran out, 0 where that is not known.
func held(a Attempt) (bytes int64) {
	for _, m := range a.Measured {
		if m.Failed != "" && m.Allocated > 0 {
			bytes = max(bytes, m.Allocated+m.Requested)
		}
	}
	if d := a.Diagnosis; bytes == 0 && d.OutOfMemory() && d.Allocated != nil && d.Requested != nil {
		return *d.Allocated + *d.Requested
	}
	return bytes
}

// stepOf is the time of an optimizer step in seconds, and the samples of all ranks in it;
// zero where nothing timed it.
func (j Job) stepOf(a Attempt) (seconds, samples float64) {
	for _, m := range j.Measured(a) {
		if n := m.Plan.MicroBatch * max(m.Plan.Accumulation, 1) * max(m.Plan.DataParallel, 1); m.StepSeconds > 0 && n > 0 {
			return m.StepSeconds, float64(n)
		}
	}
	return 0, 0
}

// bytes are the figures on both sides that say the most; false where one is missing, or
// the one before is only known to be at least less.
func (p *Price) bytes() (before, after int64, known bool) {
	before, after = max(p.BytesBefore, p.PredictedBefore), p.BytesAfter
	if after == 0 {
		after = p.PredictedAfter
	}
	unclear := p.AtLeast && p.PredictedBefore == 0 && before <= after
	return before, after, before > 0 && after > 0 && !unclear
}

// String says the price as a person would: "checkpointing none→full saved 13.0 GiB
// (22.4→9.4) for 1.20 times the step time". What was not measured is "about" so much, or
// "at least".
func (p *Price) String() string {
	words := []string{p.Changed.String()}
	if memory := p.Memory(); memory != "" {
		words = append(words, memory)
	}
	if time := p.Time(); time != "" {
		words = append(words, "for "+time)
	}
	return strings.Join(words, " ")
}

// Memory is its part about bytes: "saved about 3.0 GiB (9.0→6.0)"; empty where it is not known.
func (p *Price) Memory() string {
	before, after, known := p.bytes()
	if !known {
		return ""
	}
	sure := ""
	switch {
	case p.PredictedBefore > 0 || p.PredictedAfter > 0:
		sure = "about "
	case p.AtLeast:
		sure = "at least "
	}
	size, unit := inUnit(before, after)
	span := fmt.Sprintf(" (%s→%s)", size(before), size(after))
	if before < after {
		return "took " + sure + size(after-before) + unit + " more" + span
	}
	return "saved " + sure + size(before-after) + unit + span
}

// Time is its part about a step: "about 1.30 times the step time"; empty where it is not known.
func (p *Price) Time() string {
	if p.SecondsBefore <= 0 || p.SecondsAfter <= 0 {
		return ""
	}
	times := fmt.Sprintf("%.2f times the", p.SecondsAfter/p.SecondsBefore)
	if times == "1.00 times the" {
		times = "the same"
	}
	if p.Estimated {
		times = "about " + times
	}
	return times + " step time"
}
