package launcher

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/strategy"
)

// Finish writes a run's verdict. An error says how the run has ended, and carries the
// exit code of a run directory that cannot be written.
func Finish(store Store, v Verdict) error {
	if err := store.Finish(v); err != nil {
		return unwritten(v.Reason, v.Outcome == strategy.Trained, err)
	}
	return nil
}

// unwritten ends a run whose journal cannot be written: nothing is started any more,
// and the error says how the last attempt ended.
func (s State) unwritten(d Decided, err error) (Verdict, error) {
	last := s.History[len(s.History)-1]
	how := d.Decision.Reason
	if d.Decision.Relaunch {
		how = fmt.Sprintf("attempt %d: %s; no further attempt is started", last.N, d.Diagnosis.Sentence())
	}
	s.decide(d)
	return s.Verdict, unwritten(how, d.Decision.Outcome == strategy.Trained, err)
}

func unwritten(how string, trained bool, err error) error {
	hint := "make room for the run directory, or name another --run-dir or --run-id, and start gpurun again"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		hint = "the run directory is gone, and with it what is known of the run: name another --run-dir or --run-id to start the job again"
		if trained {
			hint = "the job has trained: its own files are what it wrote; the run directory is gone, so that another start would train again"
		}
	case trained:
		hint = "the job has trained: its own files are what it wrote; started again with this run directory, once that can be written, gpurun says so and trains nothing"
	}
	err = fmt.Errorf("%s; that could not be written down: %w", how, firstOf(err))
	return errext.WithCode(errext.WithHint(err, hint), errext.Code(err, strategy.CodeRunDir))
}

// firstOf is the first of errors that were joined: a disk that is full is told once.
func firstOf(err error) error {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) && len(joined.Unwrap()) > 0 {
		return firstOf(joined.Unwrap()[0])
	}
	return err
}
