package memory

import "math"

// Predict returns the expected need of a plan. If it is not known, the figures are zero, and
// Unknown is the reason.
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
	mean, instant, _ := s.peak(m, multiple, extra{})
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
		Seconds: finite(s.clock.step(m, float64(max(p.Accumulation, 1)))), Timed: s.clock.timed,
		Host: whole(f.host + st.host + s.offloaded*m), Pinned: whole(st.pinned + s.offloaded*m +
			given(multiple)*st.pinnedMore), NVMe: whole(st.nvme),
	}
	if measured {
		out.Evidence = "measured"
	}
}

// mostBytes replaces figures out of all bounds: more than any device has, and still small enough
// for additions.
const mostBytes = 1 << 62

// whole rounds a figure to bytes. An overflow counts as too many bytes, never as few: a job can
// write anything into its measurements.
func whole(bytes float64) int64 {
	if !(bytes < mostBytes) { // NaN counts as too many, too
		return mostBytes
	}
	return int64(max(bytes, 0))
}

// finite returns a time, or 0 for unknown if it is infinite or NaN: JSON has no infinity, and a
// decision that cannot be written down is not carried out.
func finite(seconds float64) float64 {
	if math.IsNaN(seconds) || math.IsInf(seconds, 0) {
		return 0
	}
	return seconds
}

// given is 1 if a condition holds, else 0.
func given(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// made is the bytes that a backward allocates with its first gradient; a bucket of an earlier
// micro batch of the step exists already.
func (st *states) made(multiple bool) float64 {
	return math.Max(st.ready-given(multiple)*st.forming, 0)
}

// An extra has the bound's additions to the expected figures, as fractions of them.
type extra struct{ blocks, head, loss, window, states, late, workspace float64 }

// peak is the largest phase of a step, with the optimizer's states. A phase has several moments, which
// are numbered: those of the backward are at the blocks' lists.
func (s *modePeaks) peak(m float64, multiple bool, x extra) (bytes float64, phase string, moment int) {
	st := &s.states
	multiple = multiple || s.kept
	kept := s.base + st.weights + st.optimizer
	gather, bucket, workspace := st.gather*(1+x.states), st.bucket*(1+x.states), s.workspace*(1+x.workspace)
	during := kept + gather + given(multiple)*(st.held+st.forming)
	forward := during + given(s.linger && !multiple)*st.held
	blocks := s.blocks * (1 + x.blocks)
	bytes, phase = s.base+st.weights+st.early+st.load, "load"
	n := 0
	most := func(v float64, name string) {
		if n++; v > bytes {
			bytes, phase, moment = v, name, n
		}
	}
	head, temporary := s.head*(1+x.head), s.temporary*(1+x.loss)
	piece := math.Min(s.pieces*m, lossPart)
	part, outputs, all := m, 0., 0.
	if s.together {
		// Those of the later call, and the one that is being added to them: autograd hands a sum on when
		// the backward of the earlier call has come to it.
		all = st.gradients + s.largest
	}
	if k := float64(s.mode.ForwardParts); k > 1 {
		// What is alive with each part: the outputs of the batch, their gradient, and the sum of
		// the parameters' gradients. A loss inside the model is not told apart from one outside.
		part, outputs, all = math.Ceil(m/k), 2*head*m, all+st.gradients
		most(forward+s.copies+(head+temporary)*m+piece, "loss")
		most(during+s.copies+all+outputs+(blocks+head+temporary)*part+piece, "recompute")
	} else {
		most(forward+s.copies+(blocks+head+temporary)*m+piece, "loss")
	}
	if s.most > s.copies {
		most(forward+s.most+outputs/2+(blocks+s.inside*(1+x.head))*part+workspace, "forward")
	}
	for _, w := range s.windows {
		g := max(w.gradients*st.gradients, all)
		if multiple {
			g = all // those of the earlier micro batches are held already
		}
		// Autocast's copies are freed with the blocks that were held for the backward.
		most(during+(1-w.gradients)*s.copies+g+outputs+(w.held*(1+x.blocks)+w.block*(1+x.window))*part+w.weights+st.made(
			multiple)+w.gradients*bucket+workspace, "recompute")
	}
	most(kept+given(s.together && multiple)*all+st.gradients*(1+x.late)+gather+st.ready+bucket+s.late+given(
		multiple)*s.again, "backward")
	most(kept+st.gradients+st.step*(1+x.states), "optimizer")
	return bytes, phase, moment
}

// bound is the peak with all uncertainties added.
func (s *modePeaks) bound(m float64, multiple bool) float64 {
	multiple = multiple || s.kept
	most, _, _ := s.peak(m, multiple, extra{
		blocks: s.blocksMore, head: s.headMore, loss: math.Max(s.headMore, s.lossMore),
		window: s.windowMore, states: s.statesMore, late: marginLate, workspace: 1,
	})
	// Counted figures are sure; the rest has a margin on top.
	counted := min(s.base+s.states.weights+s.states.optimizer+given(multiple)*s.states.held, most)
	return counted*(1+marginStates) + (most-counted)*(1+s.baseMore)*math.Max(s.wider, 1)
}

// corrected corrects a prediction by the needs of plans of the same mode. A measured peak
// replaces the formula's, and the difference is added to other predictions; a plan that ran out
// of memory needs at least that much. The part that grows with the batch is scaled with it.
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
		own, _, then := s.peak(a.micro, a.multiple, extra{})
		_, _, moment := s.peak(m, multiple, extra{})
		switch lack := a.bytes - own; {
		case lack > 0:
			mean += lack * m / a.micro
			if bound = max(bound, mean*(1+s.baseMore)); !a.failed && m < a.micro { // it may not grow with the batch
				bound = max(bound, mean*(1+s.baseMore)+lack*(1-m/a.micro))
			}
		case !a.failed && m >= a.micro && moment == then:
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
	for i := range s.anchors { // whatever other evidence there is
		if a := &s.anchors[i]; a.under(p) {
			mean = max(mean, a.bytes)
			if !a.failed {
				bound = max(bound, a.bytes*(1+marginStates))
			}
		}
	}
	return mean, max(bound, mean), measured
}

// under reports whether a plan of the same mode needs no less than the anchor.
func (a *anchor) under(p *RankPlan) bool {
	switch a.instant {
	case "load":
		return true
	case "evaluation":
		return p.Evaluation == 0 || p.Evaluation >= a.evaluation
	}
	return float64(p.MicroBatch) >= a.micro && (p.Accumulation > 1 || !a.multiple)
}
