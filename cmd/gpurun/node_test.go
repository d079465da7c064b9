package main

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/proc"
	"github.com/gpurun/gpurun/strategy"
)

// What the machine is short of may be there later; a wrong program will not.
func TestWhatCannotBeStartedHasItsCode(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
	}{
		{unix.EAGAIN, strategy.CodeRetry},
		{unix.EMFILE, strategy.CodeRetry},
		{proc.ErrNoGuard, strategy.CodeRetry},
		{fs.ErrNotExist, strategy.CodeUsage},
	} {
		var got *coded
		if err := startError(fmt.Errorf("start ranks: %w", c.err)); !errors.As(err, &got) || got.code != c.code {
			t.Errorf("%v: %v, want code %d", c.err, err, c.code)
		}
	}
	stop := &launcher.Signal{Number: unix.SIGTERM}
	if err := startError(stop); !errors.Is(err, error(stop)) {
		t.Errorf("a signal became %v", err)
	}
}
