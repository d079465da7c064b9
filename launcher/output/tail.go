package output

import (
	"bytes"
	"regexp"
	"strings"
	"sync"
	"unicode"
)

const (
	tailSize    = 64 << 10 // bytes of a stream that are kept in memory
	tailLine    = 4 << 10  // bytes of a line that Tail returns
	mostFrames  = 40       // lines that LastTraceback returns, as a finding has
	tracebackIs = "Traceback (most recent call last):"
)

// A tail keeps the end of a stream.
type tail struct {
	mu  sync.Mutex
	buf []byte // guarded by mu; at most twice tailSize
	cut bool   // guarded by mu; buf does not start where the stream did
}

func (t *tail) add(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(p) > tailSize {
		p = p[len(p)-tailSize:]
		t.buf, t.cut = t.buf[:0], true
	}
	if len(t.buf)+len(p) > 2*tailSize {
		kept := copy(t.buf, t.buf[len(t.buf)-(tailSize-len(p)):])
		t.buf, t.cut = t.buf[:kept], true
	}
	t.buf = append(t.buf, p...)
}

// lines returns the kept lines as a terminal would show them, without blank ones
// at the end.
func (t *tail) lines() []string {
	t.mu.Lock()
	text, cut := bytes.Clone(t.buf), t.cut
	t.mu.Unlock()
	raw := bytes.Split(text, []byte{'\n'})
	if cut && len(raw) > 1 {
		raw = raw[1:]
	}
	lines := make([]string, 0, len(raw))
	for _, line := range raw {
		lines = append(lines, readable(line))
	}
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// escapes are what terminals obey and do not show: colours, cursor movements, titles.
var escapes = regexp.MustCompile(`\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])`)

// plain returns a line without escape sequences.
func plain(line []byte) []byte {
	if bytes.IndexByte(line, 0x1b) < 0 {
		return line
	}
	return escapes.ReplaceAll(line, nil)
}

// readable returns a line as text: what the last carriage return left of it,
// without control characters, at most tailLine bytes.
func readable(line []byte) string {
	line = bytes.TrimRight(line, "\r")
	line = line[bytes.LastIndexByte(line, '\r')+1:]
	line = plain(line[:min(len(line), tailLine)])
	text := strings.ToValidUTF8(string(line), "\uFFFD")
	text = strings.Map(func(c rune) rune {
		if unicode.IsControl(c) && c != '\t' {
			return -1
		}
		return c
	}, text)
	return strings.TrimRight(text, " \t")
}

// Tail returns the last lines of a rank, oldest first: of stderr, or of stdout if
// nothing is on stderr. Progress bars, colours and bytes that are no text are
// reduced to what a person can read. Any goroutine may call it at any time.
func (o *Output) Tail(rank, n int) []string {
	r := o.rank(rank)
	if r == nil {
		return nil
	}
	for _, s := range []*stream{r.streams[1], r.streams[0]} {
		if lines := s.tail.lines(); len(lines) > 0 {
			return lines[max(0, len(lines)-n):]
		}
	}
	return nil
}

// LastTraceback returns the last traceback that a rank printed, oldest line first
// and with the exception as its last, or nil. Any goroutine may call it at any time.
func (o *Output) LastTraceback(rank int) []string {
	r := o.rank(rank)
	if r == nil {
		return nil
	}
	r.mu.Lock()
	seen := r.lastRaised.Finding
	r.mu.Unlock()
	if seen != nil && len(seen.Traceback) > 0 {
		return seen.Traceback
	}
	for _, s := range []*stream{r.streams[1], r.streams[0]} {
		if lines := traceback(s.tail.lines()); len(lines) > 0 {
			return lines
		}
	}
	return nil
}

// traceback finds the last Python traceback in lines. What stands before its first
// line, such as PyTorch's "[rank0]: ", is taken off all of its lines.
func traceback(lines []string) []string {
	for i := len(lines) - 1; i >= 0; i-- {
		at := strings.Index(lines[i], tracebackIs)
		if at < 0 {
			continue
		}
		prefix := lines[i][:at]
		found := []string{tracebackIs}
		for _, line := range lines[i+1:] {
			line = strings.TrimPrefix(line, prefix)
			found = append(found, line)
			if line != "" && line[0] != ' ' {
				break
			}
		}
		return found[max(0, len(found)-mostFrames):]
	}
	return nil
}
