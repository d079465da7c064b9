package document

import "bytes"

// deepest is how many brackets, or parts of a dotted key, may stand inside each
// other. The parser's memory grows with the square of that; a person's file has
// ten.
const deepest = 64

// tooDeep returns the offset at which a TOML text is nested too deeply, -1 where
// it is not. It knows strings and comments, and nothing else of TOML.
func tooDeep(text []byte) int {
	brackets, dots := 0, 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"', '\'':
			i += quotation(text[i:]) - 1
		case '#':
			if n := bytes.IndexByte(text[i:], '\n'); n >= 0 {
				i += n
			} else {
				return -1
			}
			dots = 0
		case '[', '{':
			brackets++
			dots = 0
		case ']', '}':
			brackets = max(brackets-1, 0)
			dots = 0
		case '.':
			dots++
		case '\n', '=', ',':
			dots = 0
		}
		if brackets > deepest || dots > deepest {
			return i
		}
	}
	return -1
}

// quotation returns the length of the string that the text starts with, up to
// the end of the line or the text where it is not closed.
func quotation(text []byte) int {
	quote := text[:1]
	if long := bytes.Repeat(quote, 3); bytes.HasPrefix(text, long) {
		quote = long
	}
	for i := len(quote); i < len(text); i++ {
		switch {
		case text[i] == '\\' && quote[0] == '"':
			i++
		case bytes.HasPrefix(text[i:], quote):
			return i + len(quote)
		case text[i] == '\n' && len(quote) == 1:
			return i
		}
	}
	return len(text)
}
