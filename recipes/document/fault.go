package document

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Faults puts problems at their places, in the order of the text. Two problems
// of the same place and words are one.
func Faults(text []byte, problems []Problem) []Fault {
	type found struct {
		at, n int
		key   string
	}
	root := index(text)
	all := make([]found, len(problems))
	for i, p := range problems {
		at, dotted := root.locate(p.Key, p.AtValue)
		all[i] = found{at, i, dotted}
	}
	slices.SortStableFunc(all, func(a, b found) int { return a.at - b.at })
	lines := lineStarts(text)
	seen := map[Fault]bool{}
	var sorted []Fault
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

// faultAt is a fault without words at a byte offset.
func faultAt(text []byte, lines []int, at int) Fault {
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
	return Fault{
		Line:   n,
		Column: min(utf8.RuneCount(text[start:at]), utf8.RuneCountInString(line)) + 1,
		Source: strings.ToValidUTF8(line, "\uFFFD"),
	}
}
