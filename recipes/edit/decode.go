package edit

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/gpurun/gpurun/launcher/lazy"
)

// Decode parses TOML into generic values: map[string]any, []any (also of tables), string, int64,
// float64, bool and times. The fault is the position at which the text is not TOML; what is the
// kind of the file, "a train.toml".
func DecodeTOML(text []byte, what string) (map[string]any, *FileFault) {
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
		table[key] = plainArrays(value)
	}
	return table
}

func plainArrays(v any) any {
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
			v[i] = plainArrays(element)
		}
	}
	return v
}

// deepest is the largest number of brackets, or parts of a dotted key, inside each other. The
// parser's memory grows with the square of that; a person's file has ten.
const deepest = 64

// textOrComment matches what has no structure.
var textOrComment = lazy.Regexp(`(?s)"""(?:\\.|[^\\])*?"""|'''.*?'''|"(?:\\.|[^"\\\n])*"|'[^'\n]*'|#[^\n]*`)

// tooDeep returns the offset at which a TOML text is nested too deeply, or -1.
func tooDeep(text []byte) int {
	brackets, dots := 0, 0
	blank := func(text []byte) []byte { return bytes.Repeat([]byte(" "), len(text)) }
	for i, c := range textOrComment().ReplaceAllFunc(text, blank) {
		switch c {
		case '[', '{':
			brackets, dots = brackets+1, 0
		case ']', '}':
			brackets, dots = max(brackets-1, 0), 0
		case '\n', '=', ',':
			dots = 0
		case '.':
			dots++
		}
		if brackets > deepest || dots > deepest {
			return i
		}
	}
	return -1
}
