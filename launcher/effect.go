package launcher

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/strategy"
)

// effect compares the settings that an attempt's job reports with those of its plan.
type effect struct {
	job        strategy.Job
	plan       strategy.Plan // of the attempt
	checkpoint string        // to resume from, empty for none
	evidence   *strategy.Evidence

	history []strategy.Attempt // before the attempt
	average bool               // the notice about equality on average has been shown
}

// learn takes in a reported setting, before the evidence has it, and returns a warning about it, if any.
func (e *effect) learn(s strategy.ObservedSetting) (notice string) {
	switch {
	case s.Fresh && !e.evidence.Fresh() && e.checkpoint != "":
		return fmt.Sprintf("warning: the job was asked to resume from %s, but reports that it starts from the beginning: %s",
			e.checkpoint, s.Text)
	case s.Knob == "":
		return ""
	}
	if _, known := e.evidence.Observed(e.job)[s.Knob]; known {
		return ""
	}
	return e.compare(s)
}

// compare warns if a reported setting differs from the plan, or from the value that gpurun read from the job.
func (e *effect) compare(s strategy.ObservedSetting) (notice string) {
	observed := strategy.Plan{s.Knob: s.Value}
	if pair, lost := e.job.Ineffective(e.plan, observed)[s.Knob]; lost {
		if e.unconfirmed(strategy.Changes{s.Knob: pair}) != "" {
			return "" // the ranks are stopped, with that as the reason
		}
		return fmt.Sprintf("warning: %s (%s)", strategy.Changes{s.Knob: pair}.Lost(), s.Text)
	}
	if pair, misread := e.job.Misread(e.plan, observed)[s.Knob]; misread {
		return fmt.Sprintf("warning: gpurun reads %s %s from the job, but the job reports %s: gpurun will not change it (%s)", s.Knob.Short(), pair[0], pair[1], s.Text)
	}
	return ""
}

// lostBatch returns the changes to the batch without effect, by all reports of the job. If only one half of
// such a change has effect on a rank, it must not train, even if the product stays the same.
func (e *effect) lostBatch() strategy.Changes {
	lost := e.job.Ineffective(e.plan, e.evidence.Observed(e.job))
	maps.DeleteFunc(lost, func(k strategy.Knob, _ [2]strategy.Value) bool {
		return k != strategy.MicroBatchSize && k != strategy.GradientAccumulationSteps
	})
	return lost
}

// unconfirmed returns why the ranks are stopped if changes of the batch by likely arguments are not confirmed; empty if
// another setting makes one of these changes.
func (e *effect) unconfirmed(lost strategy.Changes) string {
	var words []string
	by := e.job.Arguments(e.plan, e.history)
	for _, k := range strategy.Knobs {
		pair, is := lost[k]
		switch name := by[k].Name; {
		case !is:
		case name == "" || len(e.job.Unconfirmed(e.plan, strategy.Plan{k: pair[1]})) == 0:
			return ""
		case pair[1] == "":
			words = append(words, fmt.Sprintf("the process does not confirm that %s sets %s %s", name, k.Short(), pair[0]))
		default:
			words = append(words, fmt.Sprintf("%s does not set %s %s, the process uses %s", name, k.Short(), pair[0], pair[1]))
		}
	}
	if len(words) == 0 {
		return ""
	}
	return strings.Join(words, "; ") + ": all ranks are stopped before their first step"
}

// breaksBatch reports whether a change to the batch has no effect, by all reports of the job.
func (e *effect) breaksBatch() bool { return e.job.BatchBroken(e.plan, e.evidence.Observed(e.job)) }

// lostScale returns why the plan's batch would change the scale of the gradients, or the samples; empty if it
// would not, or if the processes have not reported that.
func (e *effect) lostScale() string {
	seen := e.evidence.Loss()
	if why := e.evidence.Follows(e.history); why != "" {
		return "the job would train on other samples, since " + why
	}
	if !e.job.Redivides(e.plan) {
		return ""
	}
	if why := e.evidence.Refused()[strategy.MicroBatchSize]; why != "" {
		return "the job would train otherwise, since " + why
	}
	if seen.Scale != strategy.ScaleWrong {
		return ""
	}
	return "the gradients would not have the scale that they had: " + seen.Reason
}

// inProcess reports whether the batch was changed in the processes, or through the job's source alone. A rank
// that does not report then may not have the change.
func (e *effect) inProcess() bool { return e.job.Unproven(e.plan) || e.evidence.AppliedBatch() }

// padded returns a notice, once, if padding, samples that depend on each other, or other changes between two
// optimizer steps appear in an attempt: without them its plan would be exact.
func (e *effect) padded() (notice string) {
	seen := e.evidence.Loss()
	before, _ := e.job.Training(e.plan, e.history)
	if e.average || seen.Uniform != "no" && seen.Rows != "no" && seen.ModelRows != "no" && seen.Differs == "" ||
		before != strategy.Exact {
		return ""
	}
	now := strategy.Attempt{Plan: e.plan, Loss: seen, Observed: e.evidence.Observed(e.job)}
	class, why := e.job.Training(e.plan, append(slices.Clone(e.history), now))
	if e.average = class == strategy.Average; !e.average {
		return ""
	}
	return "the plan is " + class.Words(why)
}
