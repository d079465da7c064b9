package launcher

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/strategy"
)

// ContinueHint is the sentence that names the command that continues a run, by the scheduler of Began. A run of Slurm
// trains on the node where gpurun resume is typed, so its job is to be requeued.
func ContinueHint(scheduler, dir string) string {
	resume := "gpurun resume " + commandline.PastePath(dir)
	if id, slurm := strings.CutPrefix(scheduler, "slurm "); slurm {
		return fmt.Sprintf("scontrol requeue %s continues the run; within a job, so does %s", id, resume)
	}
	return resume + " continues the run"
}

// An Adviser writes next steps in the words of the job, and checks them.
type Adviser interface {
	// Write makes a step's command or diff. It returns false if the job has no words for the step, or if the
	// result is not what the step needs. In place of a change of the policy that the site does not allow, it
	// returns a step of kind NextInspect, with the reason.
	Write(step strategy.NextStep, log strategy.LogPlace) (strategy.Advice, bool)
}

// mostSteps is how many are shown.
const mostSteps = 3

// next returns what the user can do after a run that ended without training. A failure here does not change
// how the run ended: then there are fewer steps, or none.
func (l *Launcher) next(s State, d strategy.Decision) []strategy.Advice {
	if l.Adviser == nil || d.Outcome == strategy.Trained || len(s.History) == 0 {
		return nil
	}
	steps := []strategy.Advice{}
	_ = errext.Recovered(func() error { // a bug leaves the steps so far
		l.addSteps(&steps, s, d)
		return nil
	})
	return steps
}

func (l *Launcher) addSteps(steps *[]strategy.Advice, s State, d strategy.Decision) {
	e := strategy.Ending{Policy: l.Policy, Job: s.Job, History: s.History, Inventory: s.inventory, Decision: d,
		Advice: s.ending.advice}
	var locked []strategy.Advice // in place of those that the site does not allow
	for _, step := range e.NextSteps() {
		written, ok := l.Adviser.Write(step, s.ending.log)
		switch {
		case !ok:
			continue
		case step.Kind == strategy.NextPolicy && written.Kind == strategy.NextInspect:
			locked = append(locked, written)
			continue
		}
		if slices.ContainsFunc(*steps, func(s strategy.Advice) bool { return sameAction(s, written) }) {
			continue // the better one has the same command
		}
		if p := step.Expected; p != nil && p.Mean > 0 {
			written.Peak = []int64{p.Mean, p.Bound}
		}
		if *steps = append(*steps, written); len(*steps) == mostSteps {
			return
		}
	}
	if len(locked) > 0 {
		*steps = append(*steps, locked[0])
	}
}

// sameAction reports whether two steps are one action for the user: the same command and diff, or without both the
// same words.
func sameAction(a, b strategy.Advice) bool {
	return a.Command == b.Command && a.Diff == b.Diff && (a.Command+a.Diff != "" || a.Reason == b.Reason)
}

// logPlace is where the log shows the failure of an attempt.
func logPlace(e strategy.Evidence, d strategy.Diagnosis) strategy.LogPlace {
	place := strategy.LogPlace{Attempt: e.Attempt, Rank: max(d.Rank, 0), Stream: "stderr"}
	for _, f := range d.Facts(&e) {
		if (f.Source == "stderr" || f.Source == "stdout") && f.Finding() != nil && f.Rank == d.Rank {
			place.Stream, place.Line = f.Source, f.Finding().Line
			break
		}
	}
	return place
}
