package document

import (
	"fmt"
	"strings"
)

// A Fault is a problem at its place in the file.
type Fault struct {
	Line, Column int    // from 1; columns count characters
	Key          string // dotted, as in the file; empty for the file itself
	Message      string // with the suggestion
	Source       string // the line, without its end
}

// An Error is everything that is wrong in a file, in the order of the file.
type Error struct {
	File   string // as the user named it
	Kind   string // what it is not, with these faults: "recipe that can be used"
	Faults []Fault
}

// Error prints one block a fault: place and message, the source line, a caret.
func (e *Error) Error() string {
	blocks := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		blocks[i] = f.block(e.File)
	}
	return strings.Join(blocks, "\n")
}

// block is one fault as it is printed.
func (f Fault) block(file string) string {
	what := f.Message
	if f.Key != "" {
		what = f.Key + ": " + what
	}
	line, caret := excerpt(f.Source, f.Column)
	return fmt.Sprintf("%s:%d:%d: %s\n    %s\n    %s", file, f.Line, f.Column, what, line, caret)
}

// widest is how many characters of a source line are shown.
const widest = 120

// excerpt returns the part of a line around a column, and the line below it
// with the caret. Tabs stay tabs in both, so that the caret stands right.
func excerpt(source string, column int) (line, caret string) {
	chars := []rune(source)
	at := min(max(column-1, 0), len(chars))
	from := 0
	if at > widest*3/4 {
		from = at - widest*3/4
	}
	to := min(from+widest, len(chars))
	var above, below strings.Builder
	for i, c := range chars[from:to] {
		if c < ' ' && c != '\t' || c == 0x7f {
			c = '\uFFFD'
		}
		above.WriteRune(c)
		if from+i < at {
			if c != '\t' {
				c = ' '
			}
			below.WriteRune(c)
		}
	}
	return above.String(), below.String() + "^"
}
