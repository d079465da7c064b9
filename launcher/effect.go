package launcher

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gpurun/gpurun/strategy"
)

// effect compares the settings that an attempt's job reports with those of its plan.
type effect struct {
	job        strategy.Job
	plan       strategy.Plan // of the attempt
	checkpoint string        // to resume from, empty for none
	evidence   *strategy.Evidence

	history []strategy.Attempt // before the attempt
	average bool               // a notice was shown that the plan is equal on average
}

// learn takes one more setting, before the evidence has it, and returns a warning, if one is due.
func (e *effect) learn(s strategy.ObservedSetting) (notice string) {
	switch {
	case s.Fresh && !e.evidence.Fresh() && e.checkpoint != "":
		return fmt.Sprintf("warning: the job was asked to resume from %s, but reports that it starts from the beginning: %s", e.checkpoint, s.Text)
	case s.Knob == "":
		return ""
	}
	if _, known := e.evidence.Observed(e.job)[s.Knob]; known {
		return ""
	}
	return e.compare(s)
}

// compare warns of a setting that differs from the plan, or from the one that gpurun reads in the job.
func (e *effect) compare(s strategy.ObservedSetting) (notice string) {
	observed := strategy.Plan{s.Knob: s.Value}
	if pair, lost := e.job.Ineffective(e.plan, observed)[s.Knob]; lost {
		return fmt.Sprintf("warning: %s (%s)", strategy.Changes{s.Knob: pair}.Lost(), s.Text)
	}
	if pair, misread := e.job.Misread(e.plan, observed)[s.Knob]; misread {
		return fmt.Sprintf("warning: gpurun reads %s %s from the job, but the job reports %s: gpurun will not change it (%s)", s.Knob.Short(), pair[0], pair[1], s.Text)
	}
	return ""
}

// lostBatch are the changes to the batch without effect, by all reports of the job. Ranks with only one half of
// such a change must not train, although they keep the product.
func (e *effect) lostBatch() strategy.Changes {
	lost := e.job.Ineffective(e.plan, e.evidence.Observed(e.job))
	maps.DeleteFunc(lost, func(k strategy.Knob, _ [2]strategy.Value) bool {
		return k != strategy.MicroBatchSize && k != strategy.GradientAccumulationSteps
	})
	return lost
}

// breaksBatch reports whether a change to the batch has no effect, by all reports of the job.
func (e *effect) breaksBatch() bool { return e.job.BatchBroken(e.plan, e.evidence.Observed(e.job)) }

// lostScale is why the gradients would change their scale with the plan's accumulation; empty where they would
// not, or where the processes have not reported it.
func (e *effect) lostScale() string {
	seen := e.evidence.Loss()
	if seen.Scale != strategy.ScaleWrong || !e.job.Redivides(e.plan) {
		return ""
	}
	return "the gradients would not have the scale that they had: " + seen.Reason
}

// inProcess reports whether the batch was changed in the processes, or by the job's source alone: then a rank
// without a report may not have the change.
func (e *effect) inProcess() bool { return e.job.Unproven(e.plan) || e.evidence.AppliedBatch() }

// padded is a notice, once, that padding, or samples that depend on each other, appear in an attempt whose plan
// would be exact without them.
func (e *effect) padded() (notice string) {
	seen := e.evidence.Loss()
	before, _ := e.job.Training(e.plan, e.history)
	if e.average || seen.Uniform != "no" && seen.Rows != "no" || before != strategy.Exact {
		return ""
	}
	now := strategy.Attempt{Plan: e.plan, Loss: seen, Observed: e.evidence.Observed(e.job)}
	class, why := e.job.Training(e.plan, append(slices.Clone(e.history), now))
	if e.average = class == strategy.Average; !e.average {
		return ""
	}
	return "the plan is " + class.Words(why)
}
