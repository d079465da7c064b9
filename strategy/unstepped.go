package strategy

import (
	"fmt"
	"slices"
)

// enoughCalls is how many calls of a model in training are not just a trial of it.
const enoughCalls = 2

// Unstepped reports whether the job's processes trained without a step of the optimizer: the
// model was called, an optimizer of it is there whose steps are counted, and there were none.
func (e *Evidence) Unstepped() bool {
	c, counted := e.folded(), false
	for _, said := range c.voices() {
		if said.Stepping {
			return false
		}
		counted = counted || said.Settings[Optimizer] != "" && said.Model != nil && !said.Model.Compiled
	}
	called := false
	for _, i := range c.measured {
		m := c.facts[i].Memory
		if m.Steps > 0 {
			return false
		}
		called = called || m.Calls >= enoughCalls
	}
	return counted && called
}

// untrained: gpurun changed the batch, and no attempt of the run made an optimizer step. A
// job that goes on at its last step has made the others before.
func (s *situation) untrained() bool {
	stepped := func(a Attempt) bool { return a.Steps > 0 && !a.Unstepped }
	return !s.diagnosis.Fatal && s.last.Unstepped && s.dividedNow() != nil && !slices.ContainsFunc(s.history, stepped)
}

// dividedNow is how the last attempt's batch differs from the job as it is written; nil: not.
func (s *situation) dividedNow() Changes {
	var changes Changes
	for k, pair := range s.job.Written.Changed(s.last.Plan) {
		if k == MicroBatchSize || k == GradientAccumulationSteps {
			if changes == nil {
				changes = Changes{}
			}
			changes[k] = pair
		}
	}
	return changes
}

// madeNoStep ends a run whose job ended with 0 and trained nothing.
func madeNoStep(s *situation) Decision {
	return Decision{Outcome: Failed, Code: CodeFailed, Reason: fmt.Sprintf(
		"attempt %d: the job ended with 0, but its optimizer made no step with %s: it has not trained; the loop may never come to its step with that accumulation",
		s.last.N, s.dividedNow())}
}
