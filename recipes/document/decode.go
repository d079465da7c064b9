// Package document is a TOML file as a person wrote it: its values, their positions, and all its
// errors, reported together and each at its position. It reads a train.toml and a recipe in the
// same way.
//
// The package does no I/O.
package document

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/BurntSushi/toml"
)

// Decode parses TOML into generic values: map[string]any, []any (also of tables), string, int64,
// float64, bool and times. The fault is the position at which the text is not TOML; what is the
// kind of the file, "a train.toml".
func Decode(text []byte, what string) (map[string]any, *FileFault) {
	if at := tooDeep(text); at >= 0 {
		f := faultAt(text, lineStarts(text), at)
		f.Message = fmt.Sprintf("not %s: nested more than %d deep", what, deepest)
		return nil, &f
	}
	root := map[string]any{}
	_, err := toml.Decode(string(text), &root)
	if err == nil {
		return Plain(root), nil
	}
	at, message := 0, err.Error()
	var parse toml.ParseError
	if errors.As(err, &parse) {
		at, message = parse.Position.Start, lowerFirst(parse.Message)
	}
	f := faultAt(text, lineStarts(text), at)
	f.Message = "not TOML: " + message
	return nil, &f
}

// lowerFirst turns another package's message into the end of a sentence.
func lowerFirst(s string) string {
	s = strings.TrimSuffix(s, ".")
	if s == "" {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}

// Plain gives every array from a TOML decoder the same type, also arrays of tables. It changes
// the table in place.
func Plain(table map[string]any) map[string]any {
	for key, value := range table {
		table[key] = plain(value)
	}
	return table
}

func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return Plain(v)
	case []map[string]any:
		array := make([]any, len(v))
		for i, element := range v {
			array[i] = Plain(element)
		}
		return array
	case []any:
		for i, element := range v {
			v[i] = plain(element)
		}
	}
	return v
}

// deepest is the largest number of brackets, or parts of a dotted key, inside each other. The
// parser's memory grows with the square of that; a person's file has ten.
const deepest = 64

// tooDeep returns the offset at which a TOML text is nested too deeply, or -1. It parses strings
// and comments, and nothing else of TOML.
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

// quotation returns the length of the string at the start of the text, up to the end of the line
// or the text if it is not closed.
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
