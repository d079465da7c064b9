package launcher

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/gpurun/gpurun/strategy"
)

// effect is what an attempt's job has said so far of the settings it was given.
type effect struct {
	job        strategy.Job
	plan       strategy.Plan // that the attempt was to run with
	checkpoint string        // that it was to go on from, empty for none
	proved     strategy.Plan
	fresh      bool // it says that it starts anew
}

// learn takes one more proof, and returns what people should know of it.
func (e *effect) learn(p strategy.Proof) (notice string) {
	switch {
	case p.Fresh && !e.fresh && e.checkpoint != "":
		e.fresh = true
		return fmt.Sprintf("warning: the job was to go on from %s, and says that it starts anew: %s", e.checkpoint, p.Text)
	case p.Knob == "":
		return ""
	}
	if _, known := e.proved[p.Knob]; known {
		return ""
	}
	e.proved = e.proved.With(strategy.Plan{p.Knob: p.Value})
	if pair, lost := e.job.Untaken(e.plan, e.proved)[p.Knob]; lost {
		return fmt.Sprintf("warning: %s (%s)", strategy.Changes{p.Knob: pair}.Lost(), p.Text)
	}
	if pair, misread := e.job.Misread(e.plan, e.proved)[p.Knob]; misread {
		return fmt.Sprintf("warning: gpurun reads %s %s from the job, which says that it uses %s, and leaves it alone (%s)", p.Knob.Short(), pair[0], pair[1], p.Text)
	}
	return ""
}

// prove weighs what the job says of its settings. It is stopped at once where a
// change to the batch did not take effect: it would train something else.
func (w *watch) prove(p strategy.Proof) {
	if text := w.effect.learn(p); text != "" {
		w.failed = errors.Join(w.failed, w.launcher.Store.Append(Noticed{Text: text}))
	}
	if w.stopped || !w.effect.job.BatchBroken(w.effect.plan, w.effect.proved) {
		return
	}
	w.evidence.Halted = true
	text := "the global batch would not be the job's own, and all ranks are stopped"
	w.failed = errors.Join(w.failed, w.launcher.Store.Append(Noticed{Text: text}))
	w.stop(int(syscall.SIGTERM), w.launcher.Graces.Failure)
}
