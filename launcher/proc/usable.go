package proc

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// leastAddressSpace is what gpurun and its guards need of it: Go and the threads of C
// reserve much more than they use.
const leastAddressSpace = 2 << 30

// ErrProc and ErrAddressSpace are wrapped by the errors of Usable: why ranks cannot be
// looked after here.
var (
	ErrProc         = errors.New("/proc does not show this process")
	ErrAddressSpace = errors.New("the address space is limited (ulimit -v, RLIMIT_AS)")
)

// Usable says why ranks cannot be looked after on this machine; nil where they can. A
// /proc of another namespace shows other processes under the numbers of ours: their
// ends would never be seen, and signals would be sent to strangers.
func Usable() error {
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
