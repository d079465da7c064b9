package ranks

import (
	"cmp"
	"io"
	"os"
	"slices"
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
	// guarded by mu; not nil while nothing is drawn: closed when the line is gone
	rest chan struct{}

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

const (
	eraseLine  = "\r\x1b[J" // with all below it: in a narrower terminal the line is several
	pushTitle  = "\x1b[22;0t"
	popTitle   = "\x1b[23;0t"
	titleStart = "\x1b]0;"
	titleEnd   = "\a"
)

// pass writes other output. It removes the line before, and draws it again after that in the same
// write, unless it did so a moment ago.
func (s *Screen) pass(to io.Writer, p []byte) (int, error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.heed()
	before, after, now := s.owed, "", time.Now()
	if s.drawn {
		before += eraseLine
	}
	next := s.cursor
	next.params = slices.Clone(next.params)
	next.follow(p)
	if next.fresh() && !next.draws {
		if now.Sub(s.last) < screenIdle {
			s.lookSoon()
		} else {
			after = s.line()
		}
	}
	s.last = now
	if before == "" && after == "" {
		n, err := to.Write(p)
		return s.passed(next, p, n), err
	}
	s.buf = append(append(append(s.buf[:0], before...), p...), after...)
	n, err := to.Write(s.buf)
	if n < len(before) || n == len(before) && len(p) > 0 {
		s.drawn = !s.begun(before, n) && s.drawn
		return 0, err
	}
	s.drawn, s.owed = false, ""
	if n -= len(before); n > len(p) {
		s.drawn, s.owed = true, after[n-len(p):]
	}
	if n >= len(p) {
		err = nil // all of p is written
	}
	return s.passed(next, p, min(n, len(p))), err
}

// passed moves the cursor over the n bytes of p that were written; next is the cursor behind all of p.
func (s *Screen) passed(next cursor, p []byte, n int) int {
	if n == len(p) {
		s.cursor = next
	} else {
		s.cursor.follow(p[:n])
	}
	return n
}

// begun records that only n of the screen's bytes were written, those owed first: the rest of a
// sequence comes before everything else, and one that was not begun is dropped.
func (s *Screen) begun(own string, n int) (started bool) {
	if n <= len(s.owed) {
		s.owed = s.owed[n:]
		return false
	}
	s.owed = own[n:]
	return true
}

// lookSoon wakes the goroutine. The caller holds turn.
func (s *Screen) lookSoon() {
	if !s.waits {
		s.waits = true
		s.signal()
	}
}

// line is the text to draw now at the start of an empty line, empty for none.
func (s *Screen) line() string {
	s.mu.Lock()
	draw, rest := s.draw, s.rest
	s.mu.Unlock()
	if draw == nil || rest != nil || s.closed || !s.front() {
		return ""
	}
	if columns := s.columns(); s.text == "" || columns != s.wide || s.stale.Swap(false) {
		s.text, s.wide = "", columns
		if line, _ := draw(columns); line != "" {
			s.text = line + "\x1b[0m\x1b[J\r"
		}
	}
	return s.text
}

// heed resets how the job draws, after Begin. The caller holds turn.
func (s *Screen) heed() {
	if s.anew.Swap(false) {
		s.cursor.draws = false
	}
}

// run draws the line while there is no output, and restores the terminal at the end.
func (s *Screen) run() {
	defer close(s.done)
	defer s.clear()
	look := time.NewTimer(time.Hour)
	defer look.Stop()
	for {
		select {
		case <-s.over:
			return
		case <-s.wake:
		case <-look.C:
		}
		if wait := s.paint(time.Now()); wait > 0 {
			look.Reset(wait)
		}
	}
}

// paint draws the line or the title, or returns how long to wait.
func (s *Screen) paint(now time.Time) (wait time.Duration) {
	s.mu.Lock()
	draw, rest := s.draw, s.rest
	s.mu.Unlock()
	s.turn.Lock()
	defer s.turn.Unlock()
	s.heed()
	s.say("")
	if draw == nil || rest != nil {
		s.waits = false
		s.erase()
		s.untitle()
		if rest != nil {
			s.rested(rest)
		}
		return 0
	}
	if wait := screenIdle - now.Sub(s.last); wait > 0 && !s.drawn {
		if s.looked {
			wait = screenBusy
		}
		s.waits, s.looked = true, true
		return wait
	}
	s.waits, s.looked = false, false
	if s.cursor.draws && s.front() {
		s.erase()
		_, title := draw(s.columns())
		s.entitle(title)
		return 0
	}
	s.untitle()
	if !s.cursor.fresh() {
		return 0
	}
	if line := s.line(); line != "" {
		s.drawn = s.say(line) || s.drawn
	}
	return 0
}

// rested reports once that the line is gone.
func (s *Screen) rested(rest chan struct{}) {
	select {
	case <-rest:
	default:
		close(rest)
	}
}

// clear restores the terminal.
func (s *Screen) clear() {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.waits, s.closed = true, true // the goroutine ends
	s.say("")
	s.erase()
	s.cursor = cursor{} // no other writer is left
	s.untitle()
}

// erase removes the line. The caller holds turn, as for all below.
func (s *Screen) erase() {
	if s.drawn {
		s.drawn = !s.say(eraseLine)
	}
}

// entitle sets the terminal's title, which is possible only between two characters.
func (s *Screen) entitle(title string) {
	if title == s.titled || title == "" || !s.cursor.whole() {
		return
	}
	push := ""
	if s.titled == "" {
		push = pushTitle
	}
	if s.say(push + titleStart + title + titleEnd) {
		s.titled = title
	}
}

// untitle restores the terminal's title.
func (s *Screen) untitle() {
	if s.titled != "" && s.cursor.whole() {
		if s.say(titleStart + titleEnd + popTitle) {
			s.titled = ""
		}
	}
}

// say writes the screen's bytes, after the pending ones, and reports whether some were written: then the rest
// is pending. The next writer gets the error of a terminal that takes none.
func (s *Screen) say(text string) (started bool) {
	own := s.owed + text
	if own == "" {
		return false
	}
	n, _ := io.WriteString(s.to, own)
	return s.begun(own, n)
}
