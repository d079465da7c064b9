package ranks

import (
	"cmp"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

const (
	// screenIdle is the pause in the output before the line is drawn: a job that writes faster
	// has no line, and no cost.
	screenIdle = 20 * time.Millisecond
	// screenBusy is the wait before the next try where there was no pause.
	screenBusy = 5 * screenIdle
	// screenPatience bounds the wait for a terminal that blocks.
	screenPatience = 300 * time.Millisecond
	// usualColumns is the width of a terminal whose width is not known.
	usualColumns = 80
)

// A Screen owns a terminal on which a line of gpurun is shown below all other output. All output
// passes through it, unchanged: the line is removed before, and drawn again after a pause with
// the cursor at the start of a line. The line would disturb a job that draws by itself: then it
// is in the terminal's title, for the rest of the attempt.
//
// A nil Screen does nothing. Any goroutine may call the methods.
type Screen struct {
	to      io.Writer
	columns func() int
	front   func() bool // gpurun is not in the background
	same    func(io.Writer) bool

	wake, over, done chan struct{}
	anew             atomic.Bool // another attempt writes from now on
	stale            atomic.Bool // the text that was drawn last is out of date

	mu   sync.Mutex
	draw func(columns int) (line, title string) // guarded by mu; nil: nothing is shown
	rest chan struct{}                          // guarded by mu; not nil while nothing is drawn: closed when the line is gone

	turn   sync.Mutex // held over each write to the terminal; guards what follows
	cursor cursor
	drawn  bool
	owed   string    // the rest of the screen's bytes after a partial write
	titled string    // the title that is shown, empty for the terminal's
	waits  bool      // the goroutine has set a timer
	looked bool      // which has expired once without a pause
	last   time.Time // when others wrote last
	closed bool
	text   string // that was drawn last, for a terminal so wide
	wide   int
	buf    []byte
}

// NewScreen owns the terminal of stderr, until Close. It returns nil if stderr is no terminal or
// a dumb one, or if stdout is a pipe, whose reader may write to the same terminal.
func NewScreen(stdout, stderr *os.File) *Screen {
	name := os.Getenv("TERM")
	if !term.IsTerminal(int(stderr.Fd())) || name == "" || name == "dumb" {
		return nil
	}
	if info, err := stdout.Stat(); err != nil || !info.Mode().IsRegular() && info.Mode()&os.ModeCharDevice == 0 {
		return nil
	}
	return openScreen(stderr, func() int {
		size, err := unix.IoctlGetWinsize(int(stderr.Fd()), unix.TIOCGWINSZ)
		if err != nil {
			return usualColumns
		}
		return cmp.Or(int(size.Col), usualColumns)
	}, func() bool {
		front, err := unix.IoctlGetInt(int(stderr.Fd()), unix.TIOCGPGRP)
		return err != nil || front == unix.Getpgrp()
	})
}

func openScreen(to io.Writer, columns func() int, front func() bool) *Screen {
	s := &Screen{
		to: to, columns: columns, front: front, same: func(w io.Writer) bool { return sameFile(w, to) },
		wake: make(chan struct{}, 1), over: make(chan struct{}), done: make(chan struct{}),
	}
	go s.run()
	return s
}

// On returns the writer, through the screen if it writes to its terminal.
func (s *Screen) On(w io.Writer) io.Writer {
	if s == nil || w == nil || !s.same(w) {
		return w
	}
	return &onScreen{s, w}
}

// onScreen writes to a screen's terminal.
type onScreen struct {
	screen *Screen
	to     io.Writer
}

func (o *onScreen) Write(p []byte) (int, error) { return o.screen.pass(o.to, p) }

// Show draws the line: draw returns it for the terminal's width, and a text for the title. draw
// must be quick. Nil removes the line.
func (s *Screen) Show(draw func(columns int) (line, title string)) {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.draw = draw
	s.mu.Unlock()
	s.stale.Store(true)
	s.signal()
}

// Begin resets what is known about how the job draws: an attempt begins.
func (s *Screen) Begin() {
	if s == nil {
		return
	}
	s.anew.Store(true)
	s.signal()
}

// Pause removes the line until Resume. It returns when the line is gone, or the terminal
// blocks.
func (s *Screen) Pause() {
	if s == nil {
		return
	}
	gone := make(chan struct{})
	s.mu.Lock()
	if s.rest != nil {
		gone = s.rest
	}
	s.rest = gone
	s.mu.Unlock()
	s.signal()
	s.await(gone)
}

// Resume shows the line again.
func (s *Screen) Resume() {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.rest = nil
	s.mu.Unlock()
	s.signal()
}

// Close removes the line for good. Writers still work. A terminal that blocks is left behind
// with the goroutine, which ends when it unblocks.
func (s *Screen) Close() {
	if s == nil {
		return
	}
	close(s.over)
	s.await(s.done)
}

func (s *Screen) await(gone <-chan struct{}) {
	timer := time.NewTimer(screenPatience)
	defer timer.Stop()
	select {
	case <-gone:
	case <-timer.C:
	}
}

func (s *Screen) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
