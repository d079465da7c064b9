package strategy

import (
	"slices"

	"github.com/gpurun/gpurun/strategy/memory"
)

// higher are the plans that differ from the one that runs by a larger micro batch, less
// checkpointing or less offload, or by some of one for less of another: what may be
// faster and computes the same.
func (s *situation) higher() []Plan {
	plans := []Plan{s.plan}
	for _, k := range []Knob{ActivationCheckpointing, OffloadActivations, OffloadOptimizer, OffloadParam} {
		for _, p := range slices.Clone(plans) {
			for _, v := range s.others(k) {
				plans = append(plans, p.With(Plan{k: v}))
			}
		}
	}
	batches := s.batches()
	for _, p := range slices.Clone(plans) {
		for _, b := range batches {
			plans = append(plans, p.With(b))
		}
	}
	failed, classes := s.ranOut(), s.job.classifier(s.all)
	now, _ := classes.class(s.plan)
	return slices.DeleteFunc(plans[1:], func(p Plan) bool {
		class, _ := classes.class(p)
		return hopeless(p, failed) || s.died(p) || class.Weaker(now) && s.policy.Prefer != Speed
	})
}

// others are the values that a knob can have beside its own: of what is offloaded only
// that nothing is.
func (s *situation) others(k Knob) []Value {
	if s.cannot(k) != "" {
		return nil
	}
	var values []Value
	for _, v := range k.words() {
		barred := slices.ContainsFunc(offloads(k), func(name string) bool { return slices.Contains(s.policy.Never, name) })
		if k == ActivationCheckpointing {
			barred = s.refused(RungCheckpointing, Plan{k: v}) != ""
		} else if v != "none" {
			continue
		}
		if v != s.current(k) && !barred && s.job.Knobs[k].Allows(v) {
			values = append(values, v)
		}
	}
	return values
}

// offloads are the words of recovery.never that keep an offload as it is: the knob's, and
// those of the rungs that make or undo it.
func offloads(k Knob) []string {
	words := []string{string(k)}
	switch k {
	case OffloadActivations:
		return append(words, string(RungOffloadActivations))
	case OffloadOptimizer:
		return append(words, string(RungUndoOffload), string(RungOffloadOptimizer))
	}
	return append(words, string(RungUndoOffload), string(RungOffloadParam))
}

// batches are the other micro batches with the same global batch, and their accumulation.
func (s *situation) batches() []Plan {
	now, known := batchOf(s.plan, s.job)
	if !known || now.vast() || s.cannot(MicroBatchSize) != "" {
		return nil
	}
	total, whole := now.perRank()
	if !whole || now.scope != ScopeDerived && s.cannot(GradientAccumulationSteps) != "" {
		return nil
	}
	var plans []Plan
	for _, micro := range divisors(total) {
		next := now
		if next.micro = micro; now.scope != ScopeDerived {
			next.accumulation = now.micro * now.accumulation / micro
		}
		if micro != now.micro && s.allowed(next.plan()) && s.refused(RungMicroBatch, next.plan()) == "" {
			plans = append(plans, next.plan())
		}
	}
	return plans
}

// allowed reports whether the job can be set to all values of a change.
func (s *situation) allowed(change Plan) bool {
	for k, v := range change {
		if !s.job.Knobs[k].Allows(v) {
			return false
		}
	}
	return true
}

// died reports whether an attempt with a plan has failed, of whatever.
func (s *situation) died(p Plan) bool {
	return slices.ContainsFunc(s.history, func(a Attempt) bool {
		return a.Diagnosis.Fatal && len(s.learned.With(s.job.used(a)).Changed(p)) == 0
	})
}

// scouted is the fastest of some plans that is likely to fit and worth a change, by what
// the attempts of the run measured.
func (s *situation) scouted(plans []Plan) (faster, bool) {
	if s.scout != nil {
		return s.scout(s, plans)
	}
	fit, t, why := s.fitted()
	if why != "" {
		return faster{}, false
	}
	now := t.memory(s.learned.With(s.job.used(s.last)))
	candidates := make([]memory.PlanCandidate, len(plans))
	for i, p := range plans {
		candidates[i] = memory.PlanCandidate{Plan: t.memory(p)}
	}
	best, saved := memory.Climb(fit, now, s.last.Measured[0], candidates)
	if best < 0 || saved >= 1 {
		return faster{}, false
	}
	return faster{
		plan: plans[best], expected: fit.Predict(candidates[best].Plan), gain: 1 / (1 - saved), peak: s.last.Measured[0].Peak, room: fit.Capacity(now),
	}, true
}
