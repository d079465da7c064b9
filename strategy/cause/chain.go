package cause

import "strings"

// A link is the way in which Python joins two tracebacks of one exception.
type link uint8

const (
	noLink   link = iota
	explicit      // raise … from: one exception is the reason for the other
	implicit      // one exception was being handled when the other was raised
)

// links are the lines between two tracebacks of a chain; CPython, 3.0 on.
var links = []struct {
	link  link
	words string
}{
	{explicit, "The above exception was the direct cause of the following exception:"},
	{implicit, "During handling of the above exception, another exception occurred:"},
}

// linkReach is the largest number of lines between a traceback and its link, or the link and the
// next traceback: blank lines, and lines of a longer message.
const linkReach = 8

// A lastException is the exception at the end of a traceback.
type lastException struct {
	code, from Code
	text       string
	seq        int
}

// chained reads the line between two tracebacks of a chain. Python puts blank lines around it:
// without one before it, it is a line of the message above.
func (s *Scanner) chained(w *writer, text string) bool {
	if w.traceback.open || w.since > linkReach {
		return false
	}
	for _, l := range links {
		if strings.HasPrefix(text, l.words) {
			if s.below(w) && s.line == s.left {
				s.left++
			} else {
				w.link = l.link
			}
			return true
		}
	}
	return false
}

// quotes reports whether a traceback that begins here is a part of the message above it. That is
// the message of an exception that left the program, with at most one blank line in between.
func (s *Scanner) quotes(w *writer) bool {
	return w.link == noLink && s.below(w) && s.line <= s.left+1
}

// below reports whether a line of the writer can be a part of the message of an exception that
// left the program. A message may contain the prefixes of other writers, unless its own lines
// have one.
func (s *Scanner) below(w *writer) bool {
	return s.left > 0 && s.line >= s.left && (s.leftBy == w || s.leftBy.key == "")
}

// from is the cause of the exception from which a traceback's own was raised; empty if that does
// not count.
func (w *writer) from(t *traceback, class, text string) Code {
	inner := w.ended
	code := inner.code
	if inner.from != "" {
		code = inner.from
	}
	if w.link == noLink || code == UserError || code == "" {
		return ""
	}
	caught := w.closed.first.function == t.last.function && w.closed.first.file == t.last.file
	if !raisedFrom(w.link, class, text, inner.text, caught) {
		return ""
	}
	return code
}

// raisedFrom reports whether an exception was raised because of the inner one that it is linked
// to. An explicit link shows that. An exception that was raised while the inner one was handled
// may come from the handler, or from the end of a job that had handled the inner one long before.
// It counts as caused by the inner one if the handler itself raised it (caught) and its class is
// not that of a mistake, or if it repeats the inner one's message.
func raisedFrom(how link, class, text, inner string, caught bool) bool {
	if how == explicit {
		return true
	}
	_, words, _ := strings.Cut(inner, ": ")
	repeats := len(words) >= 16 && strings.Contains(text, words[:16])
	return repeats || caught && !isProgramError(class)
}

// endsWithQuote reports whether a line ends the traceback with an exception whose message
// contains another traceback.
func (t *traceback) endsWithQuote(text string) bool {
	if !t.open || t.frames == 0 || indented(text, t) || !strings.Contains(text, "Traceback (most recent call last)") {
		return false
	}
	class, message, ok := exception(text)
	return ok && message != "" && !wrapper(class, message)
}

// interrupts records that a signal ended the program while the exceptions before it were being
// handled: an error of the job's own is only its context then.
func (s *Scanner) interrupts(w *writer) {
	for _, p := range w.pending {
		if f := &p.finding; f.Raised && !f.Weight.Dismissed() && p.units <= linkReach+tracebackQuiet &&
			(f.Code == UserError || f.Code == Unknown) {
			f.Weight = WeightHandled
			s.give(*f)
		}
	}
}
