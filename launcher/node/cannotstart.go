package node

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/strategy"
)

// cannotStart gives the error of a failed start its exit code, if it has none: a shortage of the machine may
// pass, else the job itself is wrong. A stop by the user stays a stop.
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

// isShort reports whether an error is a shortage of resources.
func isShort(err error) bool {
	for _, short := range []error{unix.EAGAIN, unix.ENOMEM, unix.EMFILE, unix.ENFILE, ranks.ErrNoGuard} {
		if errors.Is(err, short) {
			return true
		}
	}
	return false
}

// Usable returns why gpurun cannot supervise ranks on this machine, with a hint; nil if it can.
func Usable() error {
	err := ranks.CheckProcesses()
	hint := "raise it: ulimit -v unlimited"
	if errors.Is(err, ranks.ErrProc) {
		hint = "mount this namespace's own: unshare --mount-proc, or mount -t proc proc /proc"
	}
	return errext.WithCode(errext.WithHint(err, hint), strategy.CodeUsage)
}
