// Package document is a TOML file as a person wrote it: its values, where each
// of them stands, and everything that is wrong with it, said at once and at its
// place. A train.toml and a recipe are read with it alike.
//
// Nothing in here does I/O.
package document

import (
	"errors"
	"fmt"
	"strings"

	"github.com/BurntSushi/toml"
)

// Decode parses TOML into generic values: map[string]any, []any (of tables, too),
// string, int64, float64, bool and times. The fault says where the text is no
// TOML; what is the file's kind in words, "a train.toml".
func Decode(text []byte, what string) (map[string]any, *Fault) {
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

// lowerFirst makes a sentence of another package one of ours.
func lowerFirst(s string) string {
	s = strings.TrimSuffix(s, ".")
	if s == "" {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}

// Plain gives every array of what a TOML decoder returns the same type, that of
// an array of tables included. It changes the table in place.
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
