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

// Usable says why gpurun cannot look after ranks on this machine, with what to do about
// it; nil where it can.
func Usable() error {
	err := proc.Usable()
	hint := "raise it: ulimit -v unlimited"
	if errors.Is(err, proc.ErrProc) {
		hint = "mount this namespace's own: unshare --mount-proc, or mount -t proc proc /proc"
	}
	return errext.WithCode(errext.WithHint(err, hint), strategy.CodeUsage)
}
