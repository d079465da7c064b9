package strategy

import "slices"

// ranOut lists the plans of the history that ran out of memory, as the job really
// ran them.
func (s *situation) ranOut() []Plan {
	var plans []Plan
	for _, a := range s.history {
		if a.Diagnosis.Fatal && a.Diagnosis.Cause.OutOfMemory() {
			plans = append(plans, s.learned.With(s.job.used(a)))
		}
	}
	return plans
}

// hopeless reports whether candidate is bound to need at least the memory that
// a plan which ran out of it needed: it is that plan, or differs from it only by
// a larger micro batch or less checkpointing. Nothing else is pruned, since
// memory is not monotone across modes: fp32 to autocast adds copies of the
// weights, accumulation keeps gradients alive, ZeRO-3 gathers parameters.
func hopeless(candidate Plan, failed []Plan) bool {
	return slices.ContainsFunc(failed, func(f Plan) bool { return needsNoLess(candidate, f) })
}

func needsNoLess(candidate, failed Plan) bool {
	for _, k := range Knobs {
		a, b := candidate[k], failed[k]
		if a == b || k == GradientAccumulationSteps || a == "" || b == "" {
			continue // what a process never told is no difference
		}
		switch k {
		case MicroBatchSize:
			x, known := a.Number()
			y, also := b.Number()
			if !known || !also || x < y {
				return false
			}
		case ActivationCheckpointing:
			if slices.Index(k.words(), a) > slices.Index(k.words(), b) {
				return false
			}
		default:
			return false
		}
	}
	return true
}
