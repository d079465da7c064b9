package launcher

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gpurun/gpurun/strategy"
)

// effect compares what an attempt's job says of the settings it was given with what it
// was to run with.
type effect struct {
	job        strategy.Job
	plan       strategy.Plan // that the attempt was to run with
	checkpoint string        // that it was to resume from, empty for none
	evidence   *strategy.Evidence

	history []strategy.Attempt // before the attempt
	average bool               // people know that the plan is equal on average
}

// learn takes one more setting, before the evidence has it, and returns what people
// should know of it.
func (e *effect) learn(s strategy.ObservedSetting) (notice string) {
	switch {
	case s.Fresh && !e.evidence.Fresh() && e.checkpoint != "":
		return fmt.Sprintf("warning: the job was told to resume from %s, but says that it starts from the beginning: %s", e.checkpoint, s.Text)
	case s.Knob == "":
		return ""
	}
	if _, known := e.evidence.Observed(e.job)[s.Knob]; known {
		return ""
	}
	return e.compare(s)
}

// compare says where a setting is not what it was to be, or was taken for; empty where
// it is.
func (e *effect) compare(s strategy.ObservedSetting) (notice string) {
	observed := strategy.Plan{s.Knob: s.Value}
	if pair, lost := e.job.Ineffective(e.plan, observed)[s.Knob]; lost {
		return fmt.Sprintf("warning: %s (%s)", strategy.Changes{s.Knob: pair}.Lost(), s.Text)
	}
	if pair, misread := e.job.Misread(e.plan, observed)[s.Knob]; misread {
		return fmt.Sprintf("warning: gpurun reads %s %s from the job, but the job says that it uses %s: gpurun will not change it (%s)", s.Knob.Short(), pair[0], pair[1], s.Text)
	}
	return ""
}

// lostBatch is what of a change to the batch did not take effect, by all that the job has
// said; empty for nothing. Ranks that have one half of it must not train, either, though
// they keep the product.
func (e *effect) lostBatch() strategy.Changes {
	lost := e.job.Ineffective(e.plan, e.evidence.Observed(e.job))
	maps.DeleteFunc(lost, func(k strategy.Knob, _ [2]strategy.Value) bool {
		return k != strategy.MicroBatchSize && k != strategy.GradientAccumulationSteps
	})
	return lost
}

// breaksBatch reports whether a change to the batch did not take effect, by all that the
// job has said.
func (e *effect) breaksBatch() bool { return e.job.BatchBroken(e.plan, e.evidence.Observed(e.job)) }

// lostScale says why the gradients would not keep their scale with the plan's accumulation;
// empty where they would, or where the job's processes have not said it.
func (e *effect) lostScale() string {
	seen := e.evidence.Loss()
	if seen.Scale != strategy.ScaleWrong || !e.job.Redivides(e.plan) {
		return ""
	}
	return "the gradients would not have the scale that they had: " + seen.Reason
}

// inProcess reports whether the batch was changed in the processes, or by what only the
// job's source says: then a rank that has said nothing may not have it.
func (e *effect) inProcess() bool { return e.job.Unproven(e.plan) || e.evidence.AppliedBatch() }

// padded is what people should know, once, where padding, or samples that depend on each
// other, show in an attempt whose plan was exact without it.
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
