package launcher

import (
	"fmt"

	"github.com/gpurun/gpurun/strategy"
)

// effect compares what an attempt's job says of the settings it was given with what it
// was to run with.
type effect struct {
	job        strategy.Job
	plan       strategy.Plan // that the attempt was to run with
	checkpoint string        // that it was to resume from, empty for none
	evidence   *strategy.Evidence
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
	if _, known := e.evidence.Observed()[s.Knob]; known {
		return ""
	}
	observed := strategy.Plan{s.Knob: s.Value}
	if pair, lost := e.job.Ineffective(e.plan, observed)[s.Knob]; lost {
		return fmt.Sprintf("warning: %s (%s)", strategy.Changes{s.Knob: pair}.Lost(), s.Text)
	}
	if pair, misread := e.job.Misread(e.plan, observed)[s.Knob]; misread {
		return fmt.Sprintf("warning: gpurun reads %s %s from the job, but the job says that it uses %s: gpurun will not change it (%s)", s.Knob.Short(), pair[0], pair[1], s.Text)
	}
	return ""
}

// breaksBatch reports whether a change to the batch did not take effect, by all that the
// job has said.
func (e *effect) breaksBatch() bool { return e.job.BatchBroken(e.plan, e.evidence.Observed()) }
