package ranks

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// leastAddressSpace is that of gpurun and its guards: Go and the threads of C reserve much more than they
// use.
const leastAddressSpace = 2 << 30

// ErrProc and ErrAddressSpace are wrapped by the errors of Usable.
var (
	ErrProc         = errors.New("/proc does not show this process")
	ErrAddressSpace = errors.New("the address space is limited (ulimit -v, RLIMIT_AS)")
)

// CheckProcesses returns why ranks cannot be supervised on this machine; nil if they can. If /proc belongs to another
// namespace, the ranks' pids name other processes there: gpurun would miss the ranks' ends, and signal the
// wrong processes.
func CheckProcesses() error {
	self, err := os.Readlink("/proc/self")
	if err != nil {
		return fmt.Errorf("%w: %w", ErrProc, err)
	}
	if self != strconv.Itoa(os.Getpid()) {
		return fmt.Errorf("%w: it is of another namespace, where this process is %s and not %d", ErrProc, strings.TrimSpace(self), os.Getpid())
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_AS, &limit); err == nil && limit.Cur < leastAddressSpace {
		return fmt.Errorf("%w to %d MiB, and gpurun reserves up to %d MiB", ErrAddressSpace, limit.Cur>>20, leastAddressSpace>>20)
	}
	return nil
}
