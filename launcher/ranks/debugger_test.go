package ranks

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// holdProcess traces a process, as a forgotten debugger, until the test is
// over.
func holdProcess(t *testing.T, pid int, options uintptr) {
	t.Helper()
	held, letGo, over := make(chan error), make(chan struct{}), make(chan struct{})
	go onThreadOfItsOwn(func() {
		defer close(over)
		_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0, options, 0, 0)
		if errno != 0 {
			held <- errno
			return
		}
		held <- nil
		<-letGo
	})
	if err := <-held; err != nil {
		t.Skipf("the kernel lets nobody trace here: %v", err)
	}
	t.Cleanup(func() { close(letGo); <-over })
}

// onThreadOfItsOwn calls f on a thread that ends afterwards, since what a tracer holds
// is let go of when its thread ends. The process's first thread never does: Go parks it
// for good instead, so that f must not run there.
func onThreadOfItsOwn(f func()) {
	runtime.LockOSThread() // the thread ends with the goroutine
	if unix.Gettid() != unix.Getpid() {
		f()
		return
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		runtime.LockOSThread() // not on the first one, which this goroutine's caller holds
		f()
	}()
	<-over
	runtime.UnlockOSThread()
}

// The end of a rank is reported even if a debugger holds its zombie. A rank that is held right before its end
// is no fault of the machine.
func TestRankHeldByADebugger(t *testing.T) {
	t.Run("after its end", func(t *testing.T) {
		h := newHarness(t)
		g := h.start(StartOptions{KillTimeout: 3 * time.Minute}, h.rank(0, "sleep"))
		id := h.readProcesses(1)[0]
		holdProcess(t, id.PID, 0)
		if err := unix.Kill(id.PID, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		select {
		case f := <-g.Exits():
			if f.Exit().Signal != int(unix.SIGKILL) || f.Exit().Code != 137 || f.Exit().Stopped {
				t.Errorf("exit %+v", f.Exit())
			}
		case <-time.After(2 * time.Minute):
			t.Fatal("the end of the rank is not told")
		}
		began := time.Now()
		if report := g.Stop(time.Hour); len(report.Leftover) > 0 || time.Since(began) > 2*time.Minute {
			t.Errorf("%+v after %s", report, time.Since(began))
		}
	})
	t.Run("before its end", func(t *testing.T) {
		h := newHarness(t)
		g := h.start(StartOptions{KillTimeout: time.Second}, h.rank(0, "sleep"))
		id := h.readProcesses(1)[0]
		t.Cleanup(func() { // it ends once it is let go of, and has come to this process by then
			for err := error(nil); err == nil; { // first as to its tracer, then as to its parent
				_, err = unix.Wait4(id.PID, nil, 0, nil)
			}
		})
		holdProcess(t, id.PID, unix.PTRACE_O_TRACEEXIT)
		report := g.Stop(time.Second)
		if len(report.Leftover) != 1 || !strings.Contains(report.Leftover[0].Debugger, "(process ") {
			t.Errorf("left over: %+v", report.Leftover)
		}
	})
}
