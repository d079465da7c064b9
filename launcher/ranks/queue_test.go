package ranks

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/gpurun/gpurun/test/testenv"
)

func add(q *queue, n int) bool {
	return q.put(n, func(buf []byte) []byte { return append(buf, bytes.Repeat([]byte{'.'}, n)...) })
}

func TestFullQueueDelaysAReaderOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(100, time.Second)
		start := time.Now()
		if !add(q, 100) || time.Since(start) != 0 {
			t.Fatal("an empty queue does not take what fits")
		}
		if add(q, 1) || time.Since(start) != time.Second {
			t.Fatalf("a full queue holds back for %v", time.Since(start))
		}
		for range 1000 {
			if add(q, 1) {
				t.Fatal("a full queue takes more")
			}
		}
		if time.Since(start) != time.Second {
			t.Errorf("a writer that does not move holds back for %v", time.Since(start))
		}
	})
}

func TestAWriterThatIsALittleSlowLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(100, time.Second)
		got := make(chan int)
		go func() {
			total := 0
			var buf []byte
			for ok := true; ok; {
				time.Sleep(100 * time.Millisecond)
				buf, ok = q.take(buf, func() {})
				total += len(buf)
				q.moved()
			}
			got <- total
		}()
		for range 8 { // The writer takes 100 bytes in 0.1 s: 0.7 s of waiting.
			if !add(q, 100) {
				t.Error("bytes are lost")
			}
		}
		q.close()
		if total := <-got; total != 800 {
			t.Errorf("%d bytes arrive, want 800", total)
		}
		if add(q, 1) {
			t.Error("a closed queue takes bytes")
		}
	})
}

func TestPatienceIsBoundedInTheLongRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(100, time.Second)
		end := make(chan struct{})
		go func() { // A writer at a tenth of the reader's pace.
			defer close(end)
			var buf []byte
			for ok := true; ok; {
				time.Sleep(time.Second)
				buf, ok = q.take(buf, func() {})
				q.moved()
			}
		}()
		start, waited, lost := time.Now(), time.Duration(0), 0
		for range 10000 {
			time.Sleep(100 * time.Millisecond)
			before := time.Now()
			if !add(q, 100) {
				lost++
			}
			waited += time.Since(before)
		}
		if most := time.Second + time.Since(start)/100 + 10*time.Millisecond; waited > most {
			t.Errorf("the reader waited %v, want at most %v", waited, most)
		}
		if lost < 8000 || lost > 9500 {
			t.Errorf("%d of 10000 are lost", lost)
		}
		q.close()
		<-end
	})
}

func TestAQueueGivesMemoryBack(t *testing.T) {
	large := make([]byte, 1<<20)
	if got := recycle(large, 100); got != nil {
		t.Errorf("a buffer of %d bytes is kept for 100", cap(got))
	}
	if got := recycle(large, 1<<19); cap(got) != 1<<20 || len(got) != 0 {
		t.Errorf("a buffer that is needed is not reused")
	}
}

func TestFinishedUnits(t *testing.T) {
	tests := []struct{ units, rest string }{
		{"", ""},
		{"", "text"},
		{"line\n", ""},
		{"line\nline\n", "text"},
		{"", "\r"},
		{"", "\r10%"},
		{"\r10%", "\r20%"},
		{"10%", "\r20%"},
		{"\r10%\r20%", "\r30%\r"},
		{"", "text\r"},
		{"line\r\n", "text\r"},
		{"line\n\r1%", "\r2%"},
	}
	for _, test := range tests {
		p := test.units + test.rest
		if n := finished([]byte(p)); p[:n] != test.units {
			t.Errorf("of %q the units %q are finished, want %q", p, p[:n], test.units)
		}
	}
}

func TestPrefixed(t *testing.T) {
	tests := []struct{ in, out string }{
		{"a\nb\n", "P a\nP b\n"},
		{"\n\n", "P \nP \n"},
		{"a\r\nb", "P a\r\nP b"},
		{"\r10%\r20%", "\rP 10%\rP 20%"},
		{"a\r\r\n", "P a\rP \r\n"},
	}
	for _, test := range tests {
		v := &view{prefix: "P ", start: true}
		if got := string(v.appendPrefixed(nil, []byte(test.in))); got != test.out {
			t.Errorf("%q is shown as %q, want %q", test.in, got, test.out)
		}
	}
}

// TestUnitsLoseNothing writes anything at all in any pieces: a rank that has the
// console to itself for a while sees all of its bytes there, whatever they are.
func TestUnitsLoseNothing(t *testing.T) {
	text := rapid.StringOfN(rapid.RuneFrom([]rune("ab\n\r")), 0, 40, -1)
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		screen := newScreen()
		o, err := OpenOutput(OutputOptions{Ranks: []int{0, 1}, Dir: dir, Stdout: screen})
		if err != nil {
			rt.Fatal(err)
		}
		out, _ := o.Files(0)
		want := ""
		for _, piece := range rapid.SliceOf(text).Draw(rt, "pieces") {
			writeOutput(t, out, piece)
			want += piece
		}
		wait(t, o)
		if got := screen.String(); got != want {
			rt.Fatalf("the console shows %q, want %q", got, want)
		}
	})
}

func TestALineWithoutEndTakesLittleMemory(t *testing.T) {
	var count counter
	o := open(t, 2, OutputOptions{Stdout: &count, MaxBytes: 1 << 20})
	out, _ := o.Files(0)
	chunk := strings.Repeat("0123456789abcdef", 64<<10)
	for range 8 {
		writeOutput(t, out, chunk)
	}
	v := o.ranks[0].streams[0].view
	wait(t, o)
	if got := cap(v.rest); got > 4*longestUnit {
		t.Errorf("%d bytes are held for an unfinished line", got)
	}
	if count.n+v.dropped < 8<<20 {
		t.Errorf("%d bytes reach the console", count.n)
	}
}

// counter is a console that only counts; one goroutine writes to it.
type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}

func setSize(t *testing.T, f *os.File, width, height uint16) string {
	t.Helper()
	err := control(f, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: height, Col: width})
	})
	testenv.Check(t, err)
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
	testenv.Check(t, err)
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
	testenv.Check(t, err)
	return flags&unix.O_NONBLOCK == 0
}

func TestWriteEndIsBlocking(t *testing.T) {
	for name, open := range map[string]func() (read, write *os.File, err error){
		"pipe":            openPipe,
		"pseudo-terminal": func() (read, write *os.File, err error) { return openPTY(nil) },
	} {
		read, write, err := open()
		testenv.Check(t, err)
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
	testenv.Check(t, err)
	defer terminal.Close()
	defer other.Close()
	read, write, err := openPTY(terminal)
	testenv.Check(t, err)
	defer write.Close()
	setSize(t, terminal, 132, 43)
	testenv.Check(t, copySize(read, terminal))
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
	testenv.Check(t, err)
	defer file.Close()
	if _, _, err := openPTY(file); err == nil {
		t.Error("a file has a terminal's size")
	}
	o := &Output{opts: OutputOptions{Stdout: file, TTY: true}}
	if o.terminal() != nil || o.Resize() != nil {
		t.Error("a file counts as a terminal")
	}
}
