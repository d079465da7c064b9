package report

import (
	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// An ownError is what a run ended with that no change of its memory answers: it comes before
// all that is told of memory.
type ownError struct {
	Words, Place string
	Traceback    []string
}

// ownError is that of the last attempt; nil where it has none, or memory was the reason.
func (d *Data) ownError(l level) *ownError {
	if len(d.Attempts) == 0 || d.Verdict != nil && d.Verdict.Outcome == strategy.Trained {
		return nil
	}
	a := &d.Attempts[len(d.Attempts)-1]
	if !a.failedByItself() || a.Diagnosis.Error == "" {
		return nil
	}
	e := &ownError{Words: d.say.text(a.Diagnosis.Error, longSentence), Traceback: d.traceback(a, l)}
	if a.Diagnosis.Place != nil {
		e.Place = d.say.text(a.Diagnosis.Place.Words(), longLine)
	}
	return e
}

// failedByItself reports whether an attempt failed, and not for want of memory.
func (a *Attempt) failedByItself() bool { return a.Diagnosis.Fatal && !a.Diagnosis.OutOfMemory() }

// traceback is the failing rank's, its last lines.
func (d *Data) traceback(a *Attempt, l level) (shown []string) {
	for _, line := range cause.Shown(launcher.Traceback(a.Evidence, a.Diagnosis), min(l.lines, 30)) {
		shown = append(shown, d.say.text(line, longLine))
	}
	return shown
}
