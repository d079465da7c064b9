package node

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/proc"
	"github.com/gpurun/gpurun/strategy"
)

// cannotStart gives the reason why ranks cannot be started its exit code, where it
// has none yet: what the machine is short of may be there later, and else the job
// itself is wrong. A user's stop stays what it is.
func cannotStart(err error) error {
	var stop *launcher.Signal
	switch {
	case err == nil || errors.As(err, &stop) || errext.Code(err, 0) != 0:
		return err
	case isShort(err):
		return errext.WithCode(errext.WithHint(err, "the machine is short of processes, descriptors or memory: see ulimit -a, and pids.max of the cgroup"), strategy.CodeRetry)
	}
	return errext.WithCode(err, strategy.CodeUsage)
}

// isShort reports whether what failed did so because there is no more of something.
func isShort(err error) bool {
	for _, short := range []error{unix.EAGAIN, unix.ENOMEM, unix.EMFILE, unix.ENFILE, proc.ErrNoGuard} {
		if errors.Is(err, short) {
			return true
		}
	}
	return false
}
