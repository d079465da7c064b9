package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/strategy"
)

// What the machine is short of may be there later; a wrong program will not.
func TestUnstartableRanksHaveTheirCode(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
	}{
		{unix.EAGAIN, strategy.CodeRetry},
		{unix.ENOMEM, strategy.CodeRetry},
		{unix.EMFILE, strategy.CodeRetry},
		{unix.ENFILE, strategy.CodeRetry},
		{ranks.ErrNoGuard, strategy.CodeRetry},
		{fs.ErrNotExist, strategy.CodeUsage},
		{&os.PathError{Op: "exec", Path: "x", Err: unix.ENOENT}, strategy.CodeUsage},
		{errext.WithCode(unix.ENOSPC, strategy.CodeRunDir), strategy.CodeRunDir},
	} {
		if got := errext.Code(cannotStart(fmt.Errorf("start ranks: %w", c.err)), 0); got != c.code {
			t.Errorf("%v: code %d, want %d", c.err, got, c.code)
		}
	}
	stop := &launcher.Signal{Number: unix.SIGTERM}
	if err := cannotStart(stop); !errors.Is(err, error(stop)) || errext.Code(err, 0) != 0 {
		t.Errorf("a signal became %v", err)
	}
}
