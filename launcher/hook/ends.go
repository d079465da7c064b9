package hook

import (
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/strategy"
)

// processEnds are processes that reported their end, until they are gone: one may hang
// after its report.
type processEnds struct {
	pending []strategy.Fact
	gone    chan int // the pid of one that has ended
	quit    chan struct{}
	waits   sync.WaitGroup
}

func newProcessEnds() *processEnds {
	return &processEnds{gone: make(chan int), quit: make(chan struct{})}
}

// add begins to wait for a process. What it wrote before is replaced.
func (e *processEnds) add(f strategy.Fact) {
	pid := strategy.As[*strategy.ProcessEnd](f).PID
	if i := e.index(pid); i >= 0 {
		e.pending[i] = f
		return
	}
	e.pending = append(e.pending, f)
	e.waits.Go(func() {
		if awaitEnd(pid, e.quit) {
			select {
			case e.gone <- pid:
			case <-e.quit:
			}
		}
	})
}

func (e *processEnds) index(pid int) int {
	return slices.IndexFunc(e.pending,
		func(f strategy.Fact) bool { return strategy.As[*strategy.ProcessEnd](f).PID == pid })
}

// emitOne emits how a process ended that is gone.
func (e *processEnds) emitOne(pid int, emit func(strategy.Fact)) {
	if i := e.index(pid); i >= 0 {
		f := e.pending[i]
		e.pending = slices.Delete(e.pending, i, i+1)
		f.Time = time.Now()
		emit(f)
	}
}

// stop waits no longer: gpurun has ended the processes that are left.
func (e *processEnds) stop(emit func(strategy.Fact)) {
	close(e.quit)
	e.waits.Wait()
	e.emitAll(emit)
}

func (e *processEnds) emitAll(emit func(strategy.Fact)) {
	for len(e.pending) > 0 {
		e.emitOne(strategy.As[*strategy.ProcessEnd](e.pending[0]).PID, emit)
	}
}

// awaitEnd waits until a process is gone, and reports false where quit came first, and where
// the kernel has no pidfds.
func awaitEnd(pid int, quit <-chan struct{}) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return errors.Is(err, unix.ESRCH)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return false
	}
	process := os.NewFile(uintptr(fd), "pidfd")
	defer process.Close()
	raw, err := process.SyscallConn()
	if err != nil {
		return false
	}
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-quit:
			process.SetReadDeadline(time.Unix(1, 0)) // ends the wait below
		case <-ended:
		}
	}()
	err = raw.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
	})
	return err == nil
}
