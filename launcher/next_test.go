package launcher

import (
	"testing"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// oneCommand is an adviser that has the same command for each step.
type oneCommand struct{ wrote int }

func (a *oneCommand) Write(step strategy.NextStep, _ strategy.LogPlace) (strategy.Advice, bool) {
	a.wrote++
	return strategy.Advice{Kind: step.Kind, Command: "gpurun train.py", Reason: step.Reason}, true
}

// Steps with the same command are shown once, as the best of them.
func TestNextStepsDoNotRepeat(t *testing.T) {
	adviser := &oneCommand{}
	l := Launcher{Adviser: adviser}
	failed := strategy.Diagnosis{Cause: cause.UserError, Fatal: true, Rank: -1}
	s := State{History: []strategy.Attempt{{Diagnosis: failed}}, ending: attemptEnd{advice: "look at the log"}}
	got := l.next(s, strategy.Decision{Outcome: strategy.Failed})
	if adviser.wrote < 2 || len(got) != 1 || got[0].Kind != strategy.NextInspect {
		t.Errorf("%d steps were written, and shown are %+v", adviser.wrote, got)
	}
}
