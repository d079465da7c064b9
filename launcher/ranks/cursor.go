package ranks

import (
	"bytes"
	"slices"
	"strings"
)

// A cursor follows the state of a terminal, as far as it matters for drawing a line between
// other output.
type cursor struct {
	at     escapeState
	params []byte // of the control sequence that it is in
	rest   int    // bytes of a UTF-8 character that are still to come
	text   bool   // the line has text
	back   bool   // the last byte was a carriage return
	styled bool   // what comes next has a colour, or is bold
	// draws: the job draws. It went back in a line, moved the cursor, or used the whole screen.
	draws bool
}

// An escapeState is the kind of sequence that the next byte belongs to.
type escapeState uint8

const (
	inText    escapeState = iota
	inEscape              // behind ESC
	inControl             // in a control sequence, behind ESC [
	inWords               // in a text for the terminal, behind ESC ] and similar
	inEnding              // behind an ESC in such a text
)

const (
	esc = 0x1b
	// longestControl bounds a control sequence, in bytes; relevant ones are shorter.
	longestControl = 64
)

// whole reports whether the bytes so far end between two characters and sequences.
func (c *cursor) whole() bool { return c.at == inText && c.rest == 0 }

// fresh reports whether the cursor is at the start of an empty line.
func (c *cursor) fresh() bool { return c.whole() && !c.text && !c.back && !c.styled }

// follow reads the next bytes.
func (c *cursor) follow(p []byte) {
	for i := 0; i < len(p); i++ {
		b := p[i]
		switch c.at {
		case inText:
			if b >= ' ' && b < 0x7f && c.rest == 0 && !c.back {
				c.text = true
				for i+1 < len(p) && p[i+1] >= ' ' && p[i+1] < 0x7f {
					i++
				}
				continue
			}
			c.shown(b)
		case inEscape:
			c.escaped(b)
		case inControl:
			c.controlled(b)
		case inWords:
			switch b {
			case esc:
				c.at = inEnding
			case '\a', 0x18, 0x1a:
				c.at = inText
			}
		case inEnding:
			c.at = inText
			if b != '\\' {
				c.escaped(b)
			}
		}
	}
}

// shown reads a byte that is no part of a sequence.
func (c *cursor) shown(b byte) {
	if c.back && b != '\n' && b != '\r' {
		c.back, c.draws = false, true
	}
	switch {
	case b == esc:
		c.at, c.rest = inEscape, 0
	case b == '\n':
		c.text, c.back, c.rest = false, false, 0
	case b == '\r':
		c.back = true
	case b == '\b':
		c.draws = true
	case b >= 0xc2 && b < 0xf5:
		c.text, c.rest = true, 1
		if b >= 0xe0 {
			c.rest++
		}
		if b >= 0xf0 {
			c.rest++
		}
	case b >= 0x80:
		c.text, c.rest = true, max(c.rest-1, 0)
	case b >= ' ' && b != 0x7f, b == '\t':
		c.text, c.rest = true, 0
	}
}

// escaped reads a byte behind ESC.
func (c *cursor) escaped(b byte) {
	switch {
	case b < ' ':
		c.within(b)
	case b == '[':
		c.at, c.params = inControl, c.params[:0]
	case b >= ' ' && b < '0': // one more is to come
		c.at = inEscape
	case bytes.IndexByte([]byte("]P_^X"), b) >= 0:
		c.at = inWords
	default:
		c.at = inText
		c.draws = c.draws || bytes.IndexByte([]byte("78cDEM"), b) >= 0
	}
}

// within reads a control character within a sequence: it begins another one, ends it, or acts
// as elsewhere.
func (c *cursor) within(b byte) {
	switch b {
	case esc:
		c.at = inEscape
	case 0x18, 0x1a:
		c.at = inText
	default:
		c.shown(b)
	}
}

// controlled reads a byte of a control sequence.
func (c *cursor) controlled(b byte) {
	switch {
	case b < ' ':
		c.within(b)
	case b < '@':
		if len(c.params) < longestControl {
			c.params = append(c.params, b)
		}
	default:
		c.at = inText
		c.obey(b, string(c.params))
	}
}

// obey reads a whole control sequence.
func (c *cursor) obey(final byte, params string) {
	switch final {
	case 'm':
		c.styled = !plainStyle(params)
	case 'h', 'l':
		modes := strings.Split(strings.TrimPrefix(params, "?"), ";")
		screens := []string{"25", "47", "1047", "1048", "1049"} // of the cursor, and of another screen
		c.draws = c.draws || strings.HasPrefix(params, "?") &&
			slices.ContainsFunc(modes, func(m string) bool { return slices.Contains(screens, m) })
	default:
		c.draws = c.draws || strings.IndexByte("@ABCDEFGHIJLMPSTXZ`adefnrsu", final) >= 0
	}
}

// plainStyle reports whether a sequence ends all styles, or some, which then are those that the
// job began.
func plainStyle(params string) bool {
	for p := range strings.SplitSeq(params, ";") {
		switch strings.TrimLeft(p, "0") {
		case "", "22", "23", "24", "25", "27", "28", "29", "39", "49":
		default:
			return false
		}
	}
	return true
}
