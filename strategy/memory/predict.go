package memory

import "math"

// Predict is what a plan is expected to need. Its figures are zero, and Unknown says why,
// where nothing can be said.
func (f *Predictor) Predict(p RankPlan) Prediction {
	var out Prediction
	f.predict(&p, &out)
	return out
}

// predict is Predict without copies, for many candidates.
func (f *Predictor) predict(p *RankPlan, out *Prediction) {
	s := f.shape(p)
	switch {
	case s.unknown != "":
		*out = Prediction{Unknown: s.unknown}
		return
	case p.MicroBatch <= 0:
		*out = Prediction{Unknown: "the plan's micro batch is not known"}
		return
	}
	m, multiple := float64(p.MicroBatch), p.Accumulation > 1
	mean, instant := s.peak(m, multiple)
	bound := s.bound(m, multiple)
	if p.Evaluation > 0 && s.evaluation > 0 {
		if e := s.base + s.states.weights + s.states.optimizer + s.evaluation*float64(p.Evaluation); e > mean {
			mean, instant = e, "evaluation"
			bound = max(bound, e*(1+s.baseMore+marginPart))
		}
	}
	mean, bound, measured := s.corrected(p, mean, bound)
	st := &s.states
	least := s.base + st.weights + st.optimizer + st.gradients // the optimizer's step holds all three
	*out = Prediction{
		Mean: whole(mean), Bound: whole(bound), Instant: instant, Evidence: s.evidence, Least: whole(least),
		Seconds: finite(s.clock.step(m, float64(max(p.Accumulation, 1)))),
		Host:    whole(f.host + st.host + s.offloaded*m), Pinned: whole(st.pinned + s.offloaded*m + given(multiple)*st.pinnedMore), NVMe: whole(st.nvme),
	}
	if measured {
		out.Evidence = "measured"
	}
}

// mostBytes is what figures out of all bounds come to: more than any device has, and still
// a number that can be added to.
const mostBytes = 1 << 62

// whole makes bytes of a figure. One that overflowed is too many, never few: a job can
// write what it likes into its measurements.
func whole(bytes float64) int64 {
	if !(bytes < mostBytes) { // nor is what is no number few
		return mostBytes
	}
	return int64(max(bytes, 0))
}

// finite is a time, 0 for unknown where it is none: JSON has no word for infinity, and a
// decision that cannot be written down is not carried out.
func finite(seconds float64) float64 {
	if math.IsNaN(seconds) || math.IsInf(seconds, 0) {
		return 0
	}
	return seconds
}

// given is one where something holds.
func given(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// made is what a backward makes with its first gradient; a bucket that formed in an earlier
// micro batch of the step is there already.
func (st *states) made(multiple bool) float64 {
	return math.Max(st.ready-given(multiple)*st.forming, 0)
}

// peak is the largest of the instants of a step, the optimizer's states there.
func (s *modePeaks) peak(m float64, multiple bool) (bytes float64, instant string) {
	st := &s.states
	kept := s.base + st.weights + st.optimizer
	during := kept + st.gather + s.copies + given(multiple)*(st.held+st.forming)
	forward := during + given(s.linger && !multiple)*st.held
	bytes, instant = s.base+st.weights+st.load, "load"
	if v := forward + (s.blocks+s.head+s.temporary)*m; v > bytes {
		bytes, instant = v, "loss"
	}
	if v := forward - s.copies + s.most + (s.blocks+s.inside)*m + s.workspace; s.most > s.copies && v > bytes {
		bytes, instant = v, "forward"
	}
	for _, w := range s.windows {
		g := w.gradients * st.gradients
		if multiple {
			g = 0 // they are held already
		}
		// Autocast's copies go with the blocks that were held for the backward.
		if v := during - w.gradients*s.copies + g + (w.held+w.block)*m + w.weights + st.made(multiple) + w.gradients*st.bucket + s.workspace; v > bytes {
			bytes, instant = v, "recompute"
		}
	}
	if v := kept + st.gradients + st.ready + st.bucket + st.gather + s.late + given(multiple)*s.again; v > bytes {
		bytes, instant = v, "backward"
	}
	if v := kept + st.gradients + st.step; v > bytes {
		bytes, instant = v, "optimizer"
	}
	return bytes, instant
}

// bound is the same with what is uncertain added.
func (s *modePeaks) bound(m float64, multiple bool) float64 {
	st := &s.states
	kept := s.base + st.weights + st.optimizer
	gather, bucket := st.gather*(1+s.statesMore), st.bucket*(1+s.statesMore)
	during := kept + gather + given(multiple)*(st.held+st.forming)
	blocks, head := s.blocks*(1+s.blocksMore), s.head*(1+s.headMore)
	forward := during + given(s.linger && !multiple)*st.held
	most := max(s.base+st.weights+st.load, forward+s.copies+(blocks+head+s.temporary*(1+s.headMore))*m)
	if s.most > s.copies {
		most = max(most, forward+s.most+(blocks+s.inside*(1+s.headMore))*m+2*s.workspace)
	}
	for _, w := range s.windows {
		g := w.gradients * st.gradients
		if multiple {
			g = 0
		}
		most = max(most, during+(1-w.gradients)*s.copies+g+(w.held*(1+s.blocksMore)+w.block*(1+s.windowMore))*m+w.weights+st.made(multiple)+w.gradients*bucket+2*s.workspace)
	}
	most = max(most, kept+st.gradients*(1+marginLate)+gather+st.ready+bucket+s.late+given(multiple)*s.again+.5*s.lateMore)
	most = max(most, kept+st.gradients+st.step*(1+s.statesMore))
	// What is counted is sure; the rest has a margin on top.
	counted := min(kept+given(multiple)*st.held, most)
	return counted*(1+marginStates) + (most-counted)*(1+s.baseMore)
}

// corrected moves a prediction by what plans of the same mode needed: a peak that was seen
// stands for the formula's, and the difference for what the formula lacks; a plan that ran
// out of memory needs that much at least. What grows with the batch is scaled with it.
func (s *modePeaks) corrected(p *RankPlan, mean, bound float64) (float64, float64, bool) {
	m, multiple, measured := float64(p.MicroBatch), p.Accumulation > 1, false
	for i := range s.anchors {
		a := &s.anchors[i]
		switch {
		case a.instant == "load" || a.instant == "evaluation" || a.micro <= 0:
			continue
		case a.multiple != multiple && !a.failed:
			if !multiple && m <= a.micro { // not holding gradients needs no more
				mean, bound = min(mean, a.bytes), min(bound, a.bytes*(1+marginStates))
			}
			continue
		}
		own, _ := s.peak(a.micro, a.multiple)
		switch lack := a.bytes - own; {
		case lack > 0:
			mean += lack * m / a.micro
			bound = max(bound, mean*(1+s.baseMore))
		case !a.failed && m >= a.micro:
			mean += lack
		}
		switch {
		case a.failed:
		case m == a.micro:
			measured, mean, bound = true, a.bytes, a.bytes*(1+marginStates)
		case m < a.micro:
			mean, bound = min(mean, a.bytes), min(bound, a.bytes*(1+marginStates))
		}
	}
	for i := range s.anchors { // whatever else is believed
		if a := &s.anchors[i]; a.under(p) {
			mean = max(mean, a.bytes)
			if !a.failed {
				bound = max(bound, a.bytes*(1+marginStates))
			}
		}
	}
	return mean, max(bound, mean), measured
}

// under says that a plan of the same mode needs no less than what was seen.
func (a *anchor) under(p *RankPlan) bool {
	switch a.instant {
	case "load":
		return true
	case "evaluation":
		return p.Evaluation == 0 || p.Evaluation >= a.evaluation
	}
	return float64(p.MicroBatch) >= a.micro && (p.Accumulation > 1 || !a.multiple)
}
