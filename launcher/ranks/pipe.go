package ranks

import (
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// openPipe opens a pipe whose read end can be interrupted and whose write end
// blocks, as a child expects: os.Pipe would make both ends non-blocking, and the
// flag would reach the child.
func openPipe() (read, write *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("open a pipe: %w", err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, nil, fmt.Errorf("make a pipe interruptible: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "pipe"), os.NewFile(uintptr(fds[1]), "pipe"), nil
}

// openPTY opens a pseudo-terminal with the size of the given terminal, if any. It passes bytes
// unchanged: the real terminal translates newlines, and the log gets what the rank wrote.
//
// Package creack/pty is not suitable: File.Fd makes its descriptors blocking, so that a read of
// the rank's terminal could not be interrupted, and it sets the size of a file that another
// goroutine may be closing.
func openPTY(size *os.File) (read, write *os.File, err error) {
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open /dev/ptmx: %w", err)
	}
	slave, err := openSlave(master)
	if err != nil {
		unix.Close(master)
		return nil, nil, err
	}
	read, write = os.NewFile(uintptr(master), "ptmx"), os.NewFile(uintptr(slave), "pts")
	if size != nil {
		if err := copySize(read, size); err != nil {
			read.Close()
			write.Close()
			return nil, nil, err
		}
	}
	return read, write, nil
}

// openSlave opens the other end of a pseudo-terminal.
func openSlave(master int) (int, error) {
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return 0, fmt.Errorf("unlock a pseudo-terminal: %w", err)
	}
	n, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		return 0, fmt.Errorf("number a pseudo-terminal: %w", err)
	}
	path := "/dev/pts/" + strconv.Itoa(n)
	slave, err := unix.Open(path, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open %s: %w", path, err)
	}
	mode, err := unix.IoctlGetTermios(slave, unix.TCGETS)
	if err == nil {
		mode.Oflag &^= unix.OPOST
		err = unix.IoctlSetTermios(slave, unix.TCSETS, mode)
	}
	if err != nil {
		unix.Close(slave)
		return 0, fmt.Errorf("set up %s: %w", path, err)
	}
	return slave, nil
}

func copySize(to, from *os.File) error {
	var size *unix.Winsize
	err := control(from, func(fd int) (err error) {
		size, err = unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
		return err
	})
	if err != nil {
		return fmt.Errorf("read the terminal's size: %w", err)
	}
	err = control(to, func(fd int) error { return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, size) })
	if err != nil {
		return fmt.Errorf("set the pseudo-terminal's size: %w", err)
	}
	return nil
}

// control runs f on a file's descriptor and leaves its mode alone, as File.Fd may not.
func control(file *os.File, f func(fd int) error) error {
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := conn.Control(func(fd uintptr) { failed = f(int(fd)) }); err != nil {
		return err
	}
	return failed
}

// terminal returns the console's terminal, nil if it is none.
func (o *Output) terminal() *os.File {
	for _, w := range []io.Writer{o.opts.Stdout, o.opts.Stderr} {
		f, ok := w.(*os.File)
		if !ok {
			continue
		}
		is := false
		err := control(f, func(fd int) error {
			is = term.IsTerminal(fd)
			return nil
		})
		if err == nil && is {
			return f
		}
	}
	return nil
}

// Resize gives the rank's pseudo-terminals the size of the console's terminal. It is for
// SIGWINCH, which the caller also passes to the rank: a pseudo-terminal that controls no session
// sends no signal. Without TTY it does nothing.
func (o *Output) Resize() error {
	from := o.terminal()
	if !o.opts.TTY || from == nil {
		return nil
	}
	for _, r := range o.ranks {
		for _, s := range r.streams {
			if s.pipe.Name() != "ptmx" {
				continue
			}
			if err := copySize(s.pipe, from); err != nil {
				return err
			}
		}
	}
	return nil
}
