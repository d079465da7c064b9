package output

import (
	"fmt"
	"io"
	"os"

	"github.com/creack/pty"
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

// openPTY opens a pseudo-terminal that has the size of the given terminal, if
// there is one. It passes bytes as they are: newlines are the real terminal's
// matter, and the log gets what the rank wrote.
func openPTY(size *os.File) (read, write *os.File, err error) {
	master, slave, err := pty.Open()
	if err != nil {
		return nil, nil, fmt.Errorf("open a pseudo-terminal: %w", err)
	}
	defer master.Close()
	if size != nil {
		if err := pty.InheritSize(size, master); err != nil {
			slave.Close()
			return nil, nil, fmt.Errorf("copy the terminal's size: %w", err)
		}
	}
	if err := control(slave, setUpSlave); err != nil {
		slave.Close()
		return nil, nil, fmt.Errorf("set up %s: %w", slave.Name(), err)
	}
	if read, err = interruptible(master); err != nil {
		slave.Close()
		return nil, nil, err
	}
	return read, slave, nil
}

// setUpSlave makes the rank's end pass bytes as they are, and block as a child
// expects: os.OpenFile made it non-blocking.
func setUpSlave(fd int) error {
	mode, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return err
	}
	mode.Oflag &^= unix.OPOST
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, mode); err != nil {
		return err
	}
	return unix.SetNonblock(fd, false)
}

// interruptible opens the other end anew: package pty asks for the descriptor by
// File.Fd, after which a read would last until the rank writes or ends, also when
// the file is closed. It does no such harm to a File of a descriptor that has been
// non-blocking before.
func interruptible(master *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(master.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate a pseudo-terminal: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("make a pseudo-terminal interruptible: %w", err)
	}
	return os.NewFile(uintptr(fd), "ptmx"), nil
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

// Resize gives the rank's pseudo-terminals the size of the console's terminal. It
// is for SIGWINCH, which the caller also passes to the rank: a pseudo-terminal
// that controls no session signals nobody. Without TTY it does nothing.
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
			if err := pty.InheritSize(from, s.pipe); err != nil {
				return fmt.Errorf("copy the terminal's size: %w", err)
			}
		}
	}
	return nil
}
