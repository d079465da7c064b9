package output

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
	// screenIdle is how long a terminal has to be left alone before the line is drawn: a job
	// that writes faster has none, and pays for none.
	screenIdle = 20 * time.Millisecond
	// screenBusy is how soon it is looked at again where it was not.
	screenBusy = 5 * screenIdle
	// screenPatience bounds the wait for a terminal that does not move.
	screenPatience = 300 * time.Millisecond
	// usualColumns is the width of a terminal that does not tell its own.
	usualColumns = 80
)

// A Screen is the one owner of a terminal on which a line of gpurun's own stands below what
// others write. Everything for the terminal passes through it, unaltered: the line is taken
// away before, and drawn again once the terminal is left alone with its cursor at the start
// of a line. To a job that draws by itself the line would be in the way: then it stands in
// the terminal's title, for the rest of the attempt.
//
// A nil Screen is none. Any goroutine may call the methods.
type Screen struct {
	to      io.Writer
	columns func() int
	front   func() bool // gpurun may write here: it is not in the background
	same    func(io.Writer) bool

	wake, over, done chan struct{}
	anew             atomic.Bool // another job writes from now on
	stale            atomic.Bool // the text that was drawn last says no more what is to be said

	mu   sync.Mutex
	draw func(columns int) (line, title string) // guarded by mu; nil: nothing is shown
	rest chan struct{}                          // guarded by mu; not nil while nothing is drawn: closed when the line is gone

	turn   sync.Mutex // held over each write to the terminal; guards what follows
	cursor cursor
	drawn  bool
	owed   string    // the rest of the screen's own bytes of which a terminal took some only
	titled string    // the title that is shown, empty for the terminal's own
	waits  bool      // the goroutine will look by itself
	looked bool      // and has looked once in vain
	last   time.Time // when others wrote last
	closed bool
	text   string // that was drawn last, for a terminal so wide
	wide   int
	buf    []byte
}

// NewScreen owns the terminal that stderr is, until Close. There is none, and the result is
// nil, where stderr is no terminal or one that obeys nothing, and where somebody else may
// write there: stdout is a pipe, whose reader may show it on the same terminal.
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

// On is the same file or writer, through the screen where it leads to its terminal.
func (s *Screen) On(w io.Writer) io.Writer {
	if s == nil || w == nil || !s.same(w) {
		return w
	}
	return &onScreen{s, w}
}

// onScreen is one way to a screen's terminal.
type onScreen struct {
	screen *Screen
	to     io.Writer
}

func (o *onScreen) Write(p []byte) (int, error) { return o.screen.pass(o.to, p) }

// Show has the line drawn, and again at each call: draw gives it for the terminal's width,
// and a text for its title. It must be quick. Nil: nothing is shown.
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

// Begin says that another job writes from now on, or the same one anew: how it draws is not
// known yet.
func (s *Screen) Begin() {
	if s == nil {
		return
	}
	s.anew.Store(true)
	s.signal()
}

// Pause takes the line away until Resume. It returns when the line is gone, or the terminal
// does not move.
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

// Resume lets the line be drawn again.
func (s *Screen) Resume() {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.rest = nil
	s.mu.Unlock()
	s.signal()
}

// Close takes the line away for good. Writers go on to pass what they are given. A terminal
// that does not move is left behind with the goroutine, which ends once it does.
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
