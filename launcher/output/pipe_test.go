package output

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

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

func TestTheWriteEndBlocksAsAChildExpects(t *testing.T) {
	read, write, err := openPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	err = control(write, func(fd int) error {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		if flags&unix.O_NONBLOCK != 0 {
			t.Error("the write end does not block")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
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
	o := &Output{opts: Options{Stdout: file, TTY: true}}
	if o.terminal() != nil || o.Resize() != nil {
		t.Error("a file counts as a terminal")
	}
}
