package launcher

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/strategy"
)

// A Signal is the cause with which the context of Run is cancelled when gpurun is asked to stop.
type Signal struct {
	Number syscall.Signal
	// Notice names the notice that the stop follows, empty for none: then the run is not over, and is resumed when it is
	// started again.
	Notice string
}

func (s *Signal) Error() string { return fmt.Sprintf("stopped by %s", s.Number) }

// OrStop calls do before anything runs, or returns at a signal: an operation that hangs, such as a file system's, must not
// keep gpurun from ending.
func OrStop[T any](ctx context.Context, do func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := do()
		done <- result{value, err}
	}()
	var none T
	select {
	case r := <-done:
		if stop := StoppedEarly(ctx); stop != nil && r.err != nil {
			return none, stop
		}
		return r.value, r.err
	case <-ctx.Done():
		return none, StoppedEarly(ctx)
	}
}

// signalled is the signal that ended the context: SIGTERM where it was cancelled for another reason, 0 where it was not
// cancelled.
func signalled(ctx context.Context) int {
	if ctx.Err() == nil {
		return 0
	}
	var s *Signal
	if errors.As(context.Cause(ctx), &s) {
		return int(s.Number)
	}
	return int(syscall.SIGTERM)
}

// stopDecision is how a run ends at a signal: the decision next is not carried out.
func stopDecision(ctx context.Context, next strategy.Decision) strategy.Decision {
	var s *Signal
	if errors.As(context.Cause(ctx), &s) && s.Notice != "" {
		return strategy.Announced(s.Notice, next)
	}
	return strategy.Interrupted(signalled(ctx))
}

// StoppedEarly is the error of a run that a signal ends before there is a run directory, with the signal's exit code; nil
// without a signal.
func StoppedEarly(ctx context.Context) error {
	var s *Signal
	if !errors.As(context.Cause(ctx), &s) {
		return ctx.Err()
	}
	d := stopDecision(ctx, strategy.Decision{})
	return errext.WithCode(fmt.Errorf("%s before anything was started", d.Reason), d.Code)
}
