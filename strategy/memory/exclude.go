package memory

// Measured reports whether the prediction follows from bytes that this job's processes measured.
// Otherwise it assumes how another precision, another attention or an unseen block compares with
// them.
func (p *Prediction) Measured() bool {
	switch p.Evidence {
	case "measured", "same mode", "blocks seen":
		return true
	}
	return false
}

// Excludes reports whether a prediction rules its plan out: the mean is above the memory that
// there is by more than the error. A measured prediction is as likely too high as too low: its
// error is the distance from the mean to the bound. The error of others is not known.
func (f *Predictor) Excludes(plan RankPlan, p *Prediction) bool {
	if p.Measured() {
		return f.above(plan, p, 1)
	}
	return f.above(plan, p, 0)
}

// Impossible reports whether no error that was ever seen explains how the plan could fit
// (landscape: of the plans that are above by twice the distance, one of 579 fits).
func (f *Predictor) Impossible(plan RankPlan, p *Prediction) bool { return f.above(plan, p, 4) }

// above reports whether a plan needs more than there is, if its mean is too high by some times
// the distance to the bound.
func (f *Predictor) above(plan RankPlan, p *Prediction, distances float64) bool {
	capacity := f.Capacity(plan)
	if capacity == 0 {
		return false
	}
	least := float64(p.Mean) - f.doubtfulStates(plan) - distances*float64(p.Bound-p.Mean)
	return p.Unknown == "" && least > float64(capacity) || f.Held(plan).Sum() > f.Room(plan)
}

// A Held has the bytes that a rank holds between two steps on its device, without what is not
// certain.
type Held struct {
	// Other is the bytes that were held before the model's.
	Parameters, Gradients, Optimizer, Other int64
}

// Sum is all of it.
func (h Held) Sum() int64 {
	return whole(float64(h.Parameters) + float64(h.Gradients) + float64(h.Optimizer) + float64(h.Other))
}

// Held counts the states of a plan. It needs no measured activations; zero if the model is not
// known.
func (f *Predictor) Held(p RankPlan) Held {
	if f.unknown != "" {
		return Held{}
	}
	s := f.states(p)
	return Held{whole(s.weights), whole(s.gradients), whole(s.optimizer - f.doubtfulStates(p)), whole(f.base)}
}

// doubtfulStates is the part of a plan's optimizer states that may not exist: of an optimizer
// that was not seen yet, or whose name does not show whether it has them.
func (f *Predictor) doubtfulStates(p RankPlan) float64 {
	name := f.named(p)
	if name != "" && !optimizerOf(name).doubt {
		return 0
	}
	for _, s := range f.sights {
		if s.states > 0 && s.plan.Optimizer == p.Optimizer {
			return 0
		}
	}
	return f.states(p).optimizer
}
