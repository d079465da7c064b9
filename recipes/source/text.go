// Package source reads what a job's own Python source says of its command line: which
// arguments its parsers have, with which defaults, and what a call is given.
//
// It reads text and not Python: what a program computes while it runs is not known,
// and said to be so.
package source

import (
	"strings"
)

// A scanner goes through Python text by characters, and knows strings and comments.
type scanner struct {
	text string
	at   int
}

// skip moves behind the string or the comment that begins here; false where neither does.
func (s *scanner) skip() (comment, skipped bool) {
	switch s.text[s.at] {
	case '#':
		end := strings.IndexByte(s.text[s.at:], '\n')
		if end < 0 {
			end = len(s.text) - s.at
		}
		s.at += end
		return true, true
	case '"', '\'':
		s.skipString()
		return false, true
	}
	return false, false
}

// skipString moves behind a string. One that does not end goes to the end of its line.
func (s *scanner) skipString() {
	quote := s.text[s.at : s.at+1]
	if triple := strings.Repeat(quote, 3); strings.HasPrefix(s.text[s.at:], triple) {
		quote = triple
	}
	for s.at += len(quote); s.at < len(s.text); s.at++ {
		switch {
		case s.text[s.at] == '\\':
			s.at++
		case strings.HasPrefix(s.text[s.at:], quote):
			s.at += len(quote)
			return
		case len(quote) == 1 && s.text[s.at] == '\n':
			return
		}
	}
	s.at = len(s.text)
}

// withoutComments leaves comments and docstrings out, and joins continued lines.
func withoutComments(text string) string {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\\\n", "  ")
	var clean strings.Builder
	s, begun := scanner{text: text}, false // begun: the line has more than blanks
	clean.Grow(len(text))
	for s.at < len(text) {
		from := s.at
		comment, skipped := s.skip()
		switch {
		case comment:
		case skipped && !begun && (strings.HasPrefix(text[from:], `"""`) || strings.HasPrefix(text[from:], "'''")):
			clean.WriteString(`""`)
		case skipped:
			clean.WriteString(text[from:min(s.at, len(text))])
		default:
			run := strings.IndexAny(text[from:], "#\"'")
			if run < 0 {
				run = len(text) - from
			}
			s.at += run
			plain := text[from:s.at]
			line := plain[strings.LastIndexByte(plain, '\n')+1:]
			begun = strings.TrimLeft(line, " \t") != "" || begun && len(line) == len(plain)
			clean.WriteString(plain)
			continue
		}
		begun = begun || !comment
	}
	return clean.String()
}

// inBrackets splits what stands in the brackets that open at a place into its parts
// between commas. end is behind the closing bracket.
func inBrackets(text string, at int) (parts []string, end int) {
	s := scanner{text: text, at: at + 1}
	depth, from := 1, s.at
	for s.at < len(text) {
		if _, skipped := s.skip(); skipped {
			continue
		}
		switch text[s.at] {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		}
		if depth == 0 || depth == 1 && text[s.at] == ',' {
			if part := strings.TrimSpace(text[from:s.at]); part != "" {
				parts = append(parts, part)
			}
			from = s.at + 1
		}
		if depth == 0 {
			return parts, s.at + 1
		}
		s.at++
	}
	return parts, len(text)
}

// statement is what follows a place up to the end of the logical line, in two parts
// around its first equals sign outside of brackets.
func statement(text string, at int) (before, after string) {
	s := scanner{text: text, at: at}
	depth, equals := 0, -1
	for s.at < len(text) {
		if _, skipped := s.skip(); skipped {
			continue
		}
		switch c := text[s.at]; {
		case c == '(' || c == '[' || c == '{':
			depth++
		case c == ')' || c == ']' || c == '}':
			depth--
		case c == '=' && depth == 0 && equals < 0:
			equals = s.at
		}
		if text[s.at] == '\n' && depth <= 0 {
			break
		}
		s.at++
	}
	end := min(s.at, len(text))
	if equals < 0 {
		return strings.TrimSpace(text[at:end]), ""
	}
	return strings.TrimSpace(text[at:equals]), strings.TrimSpace(text[equals+1 : end])
}
