package ranks

import (
	"io"
	"slices"
	"time"
)

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
