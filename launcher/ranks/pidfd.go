package ranks

import (
	"context"
	"errors"
	"os"
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
