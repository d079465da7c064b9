package ranks

import (
	"bytes"
	"fmt"
	"time"
)

const (
	partialDelay = 100 * time.Millisecond // how long an unfinished unit is held back
	longestUnit  = 64 << 10               // bytes; a longer unit is passed on in pieces
)

// A view shows one stream on the console. Only the stream's reader uses it.
type view struct {
	console *console
	to      int // 0 for stdout, 1 for stderr
	key     int // whose unfinished line it is: the rank's, or with a prefix the stream's own
	rank    int
	path    string // the log, where all bytes are
	prefix  string
	whole   bool // bytes pass as they come

	rest    []byte // the unfinished unit
	since   time.Time
	start   bool  // what comes next starts a line
	dropped int64 // bytes not shown and not reported yet
}

func newView(c *console, to int, s *stream, prefix string, alone bool) *view {
	v := &view{
		console: c, to: to, rank: s.rank.global, path: s.log.path,
		prefix: prefix, whole: alone && prefix == "", key: 4 * s.rank.global, start: true,
	}
	if prefix != "" {
		v.key += 1 + to
	}
	return v
}

// add adds bytes of the stream. It returns when to flush an unfinished unit, zero for none.
func (v *view) add(p []byte, now time.Time) (flush time.Time) {
	if v.whole {
		v.show(p)
		return time.Time{}
	}
	if len(v.rest) > 0 {
		v.rest = append(v.rest, p...)
		p = v.rest
	}
	end := finished(p)
	if end > 0 {
		v.show(p[:end])
	}
	if len(p)-end > longestUnit {
		v.show(p[end:])
		end = len(p)
	}
	if end > 0 || len(v.rest) == 0 {
		v.since = now
		v.rest = append(v.rest[:0], p[end:]...)
	}
	if cap(v.rest) > 4*longestUnit {
		v.rest = append([]byte(nil), v.rest...)
	}
	return v.due()
}

// due returns when to flush the unfinished unit, zero for never. A lone carriage return waits for more.
func (v *view) due() time.Time {
	if len(bytes.TrimRight(v.rest, "\r")) == 0 {
		return time.Time{}
	}
	return v.since.Add(partialDelay)
}

// flush shows the unfinished unit. A last carriage return belongs to the next unit, and is shown
// only at the end.
func (v *view) flush(end bool) {
	shown := v.rest
	if !end {
		shown = bytes.TrimRight(v.rest, "\r")
	}
	if len(shown) > 0 {
		v.show(shown)
	}
	v.rest = append(v.rest[:0], v.rest[len(shown):]...)
	if end && v.dropped > 0 {
		v.console.put(v.to, always, v.appendDropped)
	}
}

// finished returns the length of the finished units in p: up to the last newline, and behind
// that up to the last carriage return with text on both sides.
func finished(p []byte) int {
	end := bytes.LastIndexByte(p, '\n') + 1
	line := p[end:]
	if text := bytes.TrimRight(line, "\r"); len(text) < len(line) && len(text) > 0 {
		line = text // Nothing is known yet about what a last \r starts.
	}
	i := bytes.LastIndexByte(line, '\r')
	if i > 0 && len(bytes.TrimLeft(line[:i], "\r")) > 0 {
		return end + i
	}
	return end
}

// show queues bytes for the console, or counts them if it is too slow.
func (v *view) show(p []byte) {
	n := len(p) + len(v.prefix) + 2
	if v.prefix != "" {
		n += len(v.prefix) * (bytes.Count(p, []byte{'\n'}) + bytes.Count(p, []byte{'\r'}))
	}
	ok := v.console.put(v.to, n, func(buf []byte) []byte {
		buf = v.appendDropped(buf)
		return v.appendUnits(buf, p)
	})
	if !ok {
		v.dropped += int64(len(p))
	}
}

// appendDropped reports how much was not shown. It runs under the queue's lock.
func (v *view) appendDropped(buf []byte) []byte {
	if v.dropped == 0 {
		return buf
	}
	text := fmt.Sprintf("gpurun: %d bytes of rank %d not shown, see %s", v.dropped, v.rank, v.path)
	v.dropped = 0
	buf = v.console.appendNote(buf, text)
	v.console.open = false
	return buf
}

// appendUnits appends whole units, on a new line unless the open line is the view's or is
// redrawn. It runs under the queue's lock.
func (v *view) appendUnits(buf, p []byte) []byte {
	c := v.console
	if c.last != v.key {
		if c.open && !v.whole && p[0] != '\r' {
			buf = append(buf, '\n')
		}
		v.start = true
	}
	c.last = v.key
	if v.prefix == "" {
		return append(buf, p...)
	}
	return v.appendPrefixed(buf, p)
}

// appendPrefixed puts the prefix at the start of each line and after each carriage
// return that redraws one.
func (v *view) appendPrefixed(buf, p []byte) []byte {
	for len(p) > 0 {
		if p[0] == '\r' && !bytes.HasPrefix(p, []byte("\r\n")) {
			buf = append(buf, '\r')
			p, v.start = p[1:], true
			continue
		}
		if v.start {
			buf = append(buf, v.prefix...)
		}
		i := lineEnd(p)
		buf = append(buf, p[:i]...)
		v.start = p[i-1] == '\n'
		p = p[i:]
	}
	return buf
}

// lineEnd returns the length of the line that p starts with: through its newline,
// or up to a carriage return that redraws it.
func lineEnd(p []byte) int {
	end := len(p)
	if i := bytes.IndexByte(p, '\n'); i >= 0 {
		end = i + 1
	}
	for i := 1; i < end; i++ {
		if p[i] == '\r' && !(i+1 < end && p[i+1] == '\n') {
			return i
		}
	}
	return end
}
