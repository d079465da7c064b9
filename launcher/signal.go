package launcher

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/strategy"
)

// A Signal is the cause that cancels the context of Run when a signal stops gpurun.
type Signal struct {
	Number syscall.Signal
	// Notice names the notice that led to the stop; empty for none. After a notice the run is not over: the
	// next start resumes it.
	Notice string
}

func (s *Signal) Error() string { return fmt.Sprintf("stopped by %s", s.Number) }

// OrStop calls do, before any rank runs, and returns early at a signal: a hanging operation, for example of a
// file system, must not keep gpurun from ending.
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

// signalled is the signal that ended the context: SIGTERM if something else cancelled it, 0 if it is not
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

// stopDecision ends the run at a signal, instead of the decision next.
func stopDecision(ctx context.Context, next strategy.Decision) strategy.Decision {
	var s *Signal
	if errors.As(context.Cause(ctx), &s) && s.Notice != "" {
		return strategy.Announced(s.Notice, next)
	}
	return strategy.Interrupted(signalled(ctx))
}

// StoppedEarly returns the error, with the signal's exit code, of a run that a signal ends before there is a
// run directory; nil without a signal.
func StoppedEarly(ctx context.Context) error {
	var s *Signal
	if !errors.As(context.Cause(ctx), &s) {
		return ctx.Err()
	}
	d := stopDecision(ctx, strategy.Decision{})
	return errext.WithCode(fmt.Errorf("%s before anything was started", d.Reason), d.Code)
}
