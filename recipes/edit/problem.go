package edit

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// A Problem is one error in a file.
type Problem struct {
	// Key is the path from the root of the file: {"recovery", "mode"}. An element of an array is
	// named by its index: {"knobs", "precision", "0"}. A key that is not in the file is shown at
	// the nearest existing table.
	Key []string
	// Message is the error, and what to write instead: lower case, no full stop.
	Message string
	// Suggest is the word that was probably meant; empty without a good guess.
	Suggest string
	// AtValue puts the caret under the value rather than under the key.
	AtValue bool
}

// String is the problem in one line, if the file's text is not available: elements of arrays are
// numbers between the dots.
func (p Problem) String() string {
	text := p.Message
	if len(p.Key) > 0 {
		text = strings.Join(p.Key, ".") + ": " + text
	}
	return text + p.meant()
}

// meant is the suggestion as it is printed.
func (p Problem) meant() string {
	if p.Suggest == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", p.Suggest)
}

// Faults puts problems at their positions, in the order of the text. Problems with the same
// position and message become one.
func Faults(text []byte, problems []Problem) []FileFault {
	type found struct {
		at, n int
		key   string
	}
	body := withoutBOM(text)
	root, _ := tomlTree(body)
	all := make([]found, len(problems))
	for i, p := range problems {
		at, dotted := root.locate(p.Key, p.AtValue)
		all[i] = found{at + len(text) - len(body), i, dotted}
	}
	slices.SortStableFunc(all, func(a, b found) int { return a.at - b.at })
	lines := lineStarts(text)
	seen := map[FileFault]bool{}
	var sorted []FileFault
	for _, one := range all {
		f := faultAt(text, lines, one.at)
		p := problems[one.n]
		f.Key, f.Message = one.key, p.Message+p.meant()
		if !seen[f] {
			seen[f] = true
			sorted = append(sorted, f)
		}
	}
	return sorted
}

// locate finds a key path, or the nearest existing table, and writes the path as in the file:
// dots, quotes around keys that need them, indices in brackets.
func (n *node) locate(path []string, atValue bool) (offset int, dotted string) {
	at, rest := n.follow(path)
	var b strings.Builder
	for _, name := range path {
		if n != nil {
			n = n.children[name]
		}
		switch {
		case n != nil && n.item:
			b.WriteString("[" + name + "]")
		case b.Len() > 0:
			b.WriteString("." + TOMLKey(name))
		default:
			b.WriteString(TOMLKey(name))
		}
	}
	if atValue && len(rest) == 0 {
		return at.start, b.String()
	}
	return at.key, b.String()
}

// lineStarts returns the offset of each line's first byte.
func lineStarts(text []byte) []int {
	starts := []int{0}
	for i, c := range text {
		if c == '\n' {
			starts = append(starts, i+1)
		}
	}
	return starts
}

// faultAt is a fault at a byte offset, without a message.
func faultAt(text []byte, lines []int, at int) FileFault {
	at = min(max(at, 0), len(text))
	n, exact := slices.BinarySearch(lines, at)
	if exact {
		n++
	}
	start, end := lines[n-1], len(text)
	if n < len(lines) {
		end = lines[n] - 1
	}
	line := strings.TrimSuffix(string(text[start:end]), "\r")
	return FileFault{
		Line:   n,
		Column: min(utf8.RuneCount(text[start:at]), utf8.RuneCountInString(line)) + 1,
		Source: strings.ToValidUTF8(line, "\uFFFD"),
	}
}

// A FileFault is a problem at its position in the file.
type FileFault struct {
	Line, Column int    // from 1; columns count characters
	Key          string // dotted, as in the file; empty for the file itself
	Message      string // with the suggestion
	Source       string // the line, without its end
}

// A FileError has all errors in a file, in the order of the file.
type FileError struct {
	File   string // the name that the user gave
	Kind   string // the kind of file that it is not: "recipe that can be used"
	Faults []FileFault
}

// Error prints one block for each fault: position and message, the source line, a caret.
func (e *FileError) Error() string {
	blocks := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		blocks[i] = f.block(e.File)
	}
	return strings.Join(blocks, "\n")
}

// block is one fault as it is printed.
func (f FileFault) block(file string) string {
	what := f.Message
	if f.Key != "" {
		what = f.Key + ": " + what
	}
	line, caret := excerpt(f.Source, f.Column)
	return fmt.Sprintf("%s:%d:%d: %s\n    %s\n    %s", file, f.Line, f.Column, what, line, caret)
}

// widest is the number of characters that are shown of a source line.
const widest = 120

// excerpt returns the part of a line around a column, and the line below it
// with the caret. Tabs stay tabs in both, so that they line up.
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
