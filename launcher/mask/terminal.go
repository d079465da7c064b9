// These functions make foreign text (a job's messages, file names, error.json) safe to show:
// they escape what a terminal would interpret, and what is invisible. The job's output does not
// pass through them.

package mask

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// TerminalLine returns a text as one line of visible characters. Control characters, C1
// controls, bidirectional marks, characters of no width and bytes that are no
// UTF-8 are escaped as Go and Python write them: \n, \x1b, \u202e. Tabs stay.
func TerminalLine(text string) string { return escape(text, false) }

// TerminalLines applies TerminalLine to each line of a text, such as a diff.
func TerminalLines(text string) string { return escape(text, true) }

// CutText shortens a text to a number of characters, with "…" after them if it was longer.
func CutText(text string, most int) string {
	n := 0
	for i := range text {
		if n == most {
			return text[:i] + "…"
		}
		n++
	}
	return text
}

// TerminalSprintf calls fmt.Sprintf with each text argument made one line by TerminalLine. The format is not
// changed.
func TerminalSprintf(format string, args ...any) string {
	safe := make([]any, len(args))
	for i, arg := range args {
		safe[i] = visible(arg)
	}
	return fmt.Sprintf(format, safe...)
}

// visible returns an argument with its text made one line. Numbers are safe, even if their type has
// a String method.
func visible(arg any) any {
	v := reflect.ValueOf(arg)
	if v.IsValid() && (v.CanInt() || v.CanUint() || v.CanFloat() || v.Kind() == reflect.Bool) {
		return arg
	}
	switch arg := arg.(type) {
	case nil:
		return arg
	case error, fmt.Stringer, []byte:
		return TerminalLine(fmt.Sprintf("%s", arg))
	}
	return TerminalLine(fmt.Sprint(arg))
}

func escape(text string, lines bool) string {
	if strings.IndexFunc(text, hidden) < 0 && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case r == '\n' && lines, !hidden(r):
			b.WriteRune(r)
		case r < 0x100 && !strings.ContainsRune("\a\b\f\n\r\v", r):
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		text = text[size:]
	}
	return b.String()
}

// invisible has the letters and marks that are not drawn, although Unicode does not count them as
// control or format characters.
var invisible = []*unicode.RangeTable{unicode.Other_Default_Ignorable_Code_Point, tagged,
	{R16: []unicode.Range16{{Lo: 0x2800, Hi: 0x2800, Stride: 1}}}}

// tagged has the variation selectors that no emoji uses: text can be hidden in them.
var tagged = &unicode.RangeTable{R32: []unicode.Range32{{Lo: 0xe0100, Hi: 0xe01ef, Stride: 1}}}

// hidden reports whether a terminal interprets a character, or draws nothing for it.
func hidden(r rune) bool {
	if r == '\t' || r >= ' ' && r < 0x7f {
		return false
	}
	return !unicode.IsGraphic(r) || unicode.In(r, invisible...)
}
