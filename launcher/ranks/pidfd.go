package ranks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// openProcess opens a pidfd on the process that id names. After the start time has been compared, a
// signal through the pidfd cannot reach another process with the same pid.
func openProcess(id identity) (fd int, err error) {
	fd, err = unix.PidfdOpen(id.PID, 0)
	if err != nil {
		return -1, os.NewSyscallError("pidfd_open", err)
	}
	if p, err := readProcess(id.PID); err != nil || p.Start != id.Start {
		unix.Close(fd)
		return -1, os.NewSyscallError("pidfd_open", unix.ESRCH)
	}
	return fd, nil
}

// pidfdFile wraps a pidfd for Go's poller, which waits for the process's end without a thread. It owns
// fd.
func pidfdFile(fd int) (*os.File, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fd), "pidfd"), nil
}

// awaitExit returns when the process behind f has ended, or with an error when f is closed.
func awaitExit(f *os.File) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	return conn.Read(func(fd uintptr) bool { return ended(int(fd)) })
}

// ended reports whether all threads of the process behind a pidfd have ended.
func ended(pidfd int) bool {
	set := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(set, 0)
	return err == nil && n > 0
}

// signalProcess sends sig to the process behind f.
func signalProcess(f *os.File, sig unix.Signal) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	if err := conn.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), sig, nil, 0) }); err != nil {
		return err
	}
	return os.NewSyscallError("pidfd_send_signal", sent)
}

// awaitExits waits until all processes behind the pidfds have ended, or ctx is done, and closes the
// pidfds.
func awaitExits(ctx context.Context, pidfds []int) {
	defer func() {
		for _, fd := range pidfds {
			unix.Close(fd)
		}
	}()
	if len(pidfds) == 0 || ctx.Err() != nil {
		return
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return // out of descriptors: the caller looks again
	}
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		one := [8]byte{1, 1, 1, 1, 1, 1, 1, 1}
		_, _ = unix.Write(wake, one[:]) // it fails only at an overflow
	})
	defer func() {
		if !stop() {
			<-woken
		}
		unix.Close(wake)
	}()
	set := []unix.PollFd{{Fd: int32(wake), Events: unix.POLLIN}}
	for _, fd := range pidfds {
		set = append(set, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	for len(set) > 1 && set[0].Revents == 0 {
		if _, err := unix.Poll(set, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		left := set[:1]
		for _, entry := range set[1:] {
			if entry.Revents == 0 {
				left = append(left, entry)
			}
		}
		set = left
	}
}

// A processEnd is how a process ended.
type processEnd struct {
	At     time.Time
	Code   int // 0–255; 128+n if signal n ended it
	Signal int // 0: none
	Peak   int64
}

// siginfo is the part of the kernel's siginfo_t that waitid fills in (man 2 sigaction).
type siginfo struct {
	signo, errno, code, _ int32
	pid                   int32
	uid                   uint32
	status                int32
}

// The values of si_code for an ended child (man 2 sigaction).
const (
	childExited = 1
	childKilled = 2
	childDumped = 3
)

// peek reads how a child ended, and leaves it a zombie: until it is reaped, no other process can get its pid
// or its group's number. It reports false if the child has not ended. The peak includes the children that it
// waited for.
func peek(pid int) (processEnd, bool, error) {
	var raw unix.Siginfo
	var usage unix.Rusage
	for {
		err := unix.Waitid(unix.P_PID, pid, &raw, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, &usage)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return processEnd{}, false, os.NewSyscallError("waitid", err)
		}
		break
	}
	info := (*siginfo)(unsafe.Pointer(&raw))
	if info.pid == 0 {
		return processEnd{}, false, nil
	}
	e := processEnd{At: time.Now(), Peak: usage.Maxrss * 1024} // Maxrss is in KiB (man 2 getrusage)
	switch info.code {
	case childKilled, childDumped:
		e.Signal = int(info.status)
		e.Code = 128 + e.Signal
	case childExited:
		e.Code = int(info.status) & 0xff
	}
	return e, true, nil
}

// reap reaps an ended child, and reports whether there was one.
func reap(pid int) bool {
	for {
		got, err := unix.Wait4(pid, nil, unix.WNOHANG, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil && got == pid
		}
	}
}

// reaper is shared by all groups, since orphans become children of the process, not of a group.
var reaper struct {
	mu    sync.Mutex // guards users, start and stop
	users int
	able  bool // pidfds show which children have an owner
	stop  chan struct{}
	done  chan struct{}
}

// If the pidfd on an ended child is closed and the child not reaped, no event reports that. So the reaper
// looks again, at growing intervals.
const (
	reapPause    = 100 * time.Millisecond
	reapPauseMax = 10 * time.Second
)

// Reap makes this process the parent of its descendants' orphans, as the init process of a container always
// is, and reaps them until release is called, once. Start does the same while its group exists. A caller that
// wants no zombies between two groups calls Reap itself.
//
// Reap never reaps a child that os/exec or os.StartProcess of this process waits for. These packages hold a
// pidfd on each of their children, and /proc/self/fdinfo shows the pid behind every pidfd.
func Reap() (release func(), err error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become subreaper: %w", err)
	}
	reaper.mu.Lock()
	defer reaper.mu.Unlock()
	if reaper.users++; reaper.users == 1 {
		reaper.able = showsHeld()
		reaper.stop, reaper.done = make(chan struct{}), make(chan struct{})
		go reapOrphans(reaper.able, reaper.stop, reaper.done)
	}
	return func() {
		reaper.mu.Lock()
		defer reaper.mu.Unlock()
		if reaper.users--; reaper.users == 0 {
			close(reaper.stop)
			<-reaper.done
		}
	}, nil
}

func reapOrphans(able bool, stop <-chan struct{}, done chan<- struct{}) {
	defer close(done)
	if !able {
		<-stop // better a zombie than a child taken from its owner
		return
	}
	died := make(chan os.Signal, 1)
	signal.Notify(died, unix.SIGCHLD)
	defer signal.Stop(died)
	pause := reapPause
	for {
		var again <-chan time.Time
		if takeOrphans() {
			again = time.After(pause)
		}
		select {
		case <-died:
			pause = reapPause
		case <-again:
			pause = min(2*pause, reapPauseMax)
		case <-stop:
			takeOrphans()
			return
		}
	}
}

// takeOrphans reaps the ended children on which this process holds no pidfd, and reports whether there
// are held ones.
func takeOrphans() (held bool) {
	pids, err := children(os.Getpid())
	if err != nil {
		return false
	}
	var zombies []int
	for _, pid := range pids {
		if p, err := readProcess(pid); err == nil && !p.alive() {
			zombies = append(zombies, pid)
		}
	}
	if len(zombies) == 0 {
		return false
	}
	// The order matters: a pidfd is opened with its child, and closed only after the child is reaped.
	holds, err := heldPIDs(os.Getpid())
	if err != nil {
		return true
	}
	for _, pid := range zombies {
		if holds[pid] {
			held = true
		} else {
			reap(pid)
		}
	}
	return held
}

// showsHeld reports whether package os holds pidfds here, and the kernel shows the pids behind them:
// Linux 5.4 and no sandbox that forbids it.
func showsHeld() bool {
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		return false
	}
	defer func() { _ = self.Release() }() // no error can matter
	held, err := heldPIDs(os.Getpid())
	return err == nil && held[os.Getpid()]
}

// heldPIDs returns the pids behind all pidfds of a process.
func heldPIDs(pid int) (map[int]bool, error) {
	dir := "/proc/" + strconv.Itoa(pid) + "/fdinfo/"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list descriptors: %w", err)
	}
	held := make(map[int]bool)
	for _, entry := range entries {
		data, err := os.ReadFile(dir + entry.Name())
		if err != nil {
			continue
		}
		for line := range bytes.Lines(data) {
			if value, ok := bytes.CutPrefix(line, []byte("Pid:")); ok {
				if pid, err := strconv.Atoi(strings.TrimSpace(string(value))); err == nil {
					held[pid] = true
				}
			}
		}
	}
	return held, nil
}
