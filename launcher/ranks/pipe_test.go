package ranks

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func setSize(t *testing.T, f *os.File, width, height uint16) string {
	t.Helper()
	err := control(f, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: height, Col: width})
	})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%dx%d", width, height)
}

func sizeOf(t *testing.T, f *os.File) (width, height uint16) {
	t.Helper()
	err := control(f, func(fd int) error {
		size, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
		if err == nil {
			width, height = size.Col, size.Row
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return width, height
}

// blocks reports whether what a child would do with the descriptor waits.
func blocks(t *testing.T, f *os.File) bool {
	t.Helper()
	flags := 0
	err := control(f, func(fd int) (err error) {
		flags, err = unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return flags&unix.O_NONBLOCK == 0
}

func TestWriteEndIsBlocking(t *testing.T) {
	for name, open := range map[string]func() (read, write *os.File, err error){
		"pipe":            openPipe,
		"pseudo-terminal": func() (read, write *os.File, err error) { return openPTY(nil) },
	} {
		read, write, err := open()
		if err != nil {
			t.Fatal(err)
		}
		defer read.Close()
		defer write.Close()
		if !blocks(t, write) {
			t.Errorf("%s: the write end does not block", name)
		}
	}
}

// A read of the rank's terminal can be ended, also after its size has been set.
func TestAPseudoTerminalIsInterruptible(t *testing.T) {
	terminal, other, err := openPTY(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	defer other.Close()
	read, write, err := openPTY(terminal)
	if err != nil {
		t.Fatal(err)
	}
	defer write.Close()
	setSize(t, terminal, 132, 43)
	if err := copySize(read, terminal); err != nil {
		t.Fatal(err)
	}
	if width, height := sizeOf(t, write); width != 132 || height != 43 {
		t.Errorf("the size is %dx%d", width, height)
	}
	ended := make(chan error)
	go func() {
		_, err := read.Read(make([]byte, 1))
		ended <- err
	}()
	time.Sleep(20 * time.Millisecond)
	read.Close()
	select {
	case err := <-ended:
		if !errors.Is(err, os.ErrClosed) {
			t.Errorf("the read ended with %v", err)
		}
	case <-time.After(2 * time.Minute):
		t.Error("the read does not end when the file is closed")
	}
}

func TestAPseudoTerminalNeedsATerminalForItsSize(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, _, err := openPTY(file); err == nil {
		t.Error("a file has a terminal's size")
	}
	o := &Output{opts: OutputOptions{Stdout: file, TTY: true}}
	if o.terminal() != nil || o.Resize() != nil {
		t.Error("a file counts as a terminal")
	}
}
