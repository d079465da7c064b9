package commandline

import (
	"fmt"
	"strings"
	"unicode"
)

// Paste joins words to a command that people paste into a shell. Every command that gpurun prints is made by it.
func Paste(words ...string) string {
	pasted := make([]string, len(words))
	for i, w := range words {
		pasted[i] = PasteWord(w)
	}
	return strings.Join(pasted, " ")
}

// PasteWord quotes one word for every POSIX shell, if necessary. A word with characters that a terminal does not show stays on
// one line, as gpurun's messages escape these.
func PasteWord(w string) string {
	hidden := func(r rune) bool { return !unicode.IsPrint(r) }
	if strings.ContainsFunc(w, hidden) && !strings.HasSuffix(w, "\n") { // $() removes line breaks at the end
		return `"$(printf '` + printfFormat(w) + `')"`
	}
	return QuoteWord(w)
}

// PastePath quotes a path. A program would take one that begins with a dash for an option.
func PastePath(path string) string {
	if strings.HasPrefix(path, "-") {
		path = "./" + path
	}
	return PasteWord(path)
}

// printfFormat escapes a text for printf(1) within single quotes.
func printfFormat(text string) string {
	var b strings.Builder
	for i := range len(text) {
		switch c := text[i]; {
		case c == '%':
			b.WriteString("%%")
		case c < ' ' || c >= 0x7f || c == '\'' || c == '\\':
			fmt.Fprintf(&b, `\%03o`, c)
		case i == 0 && c == '-': // printf would take it for an option
			b.WriteString(`\055`)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}
