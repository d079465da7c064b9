// Package document is a TOML file as a person wrote it: its values, their positions, and all its
// errors, reported together and each at its position. It reads a train.toml and a recipe in the
// same way.
//
// The package does no I/O.
package document

import (
	"errors"
	"strings"

	"github.com/BurntSushi/toml"
)

// Decode parses TOML into generic values: map[string]any, []any (also of tables), string, int64,
// float64, bool and times. The fault is the position at which the text is not TOML.
func Decode(text []byte) (map[string]any, *FileFault) {
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
