// Package patch changes one value in a command line or in a JSON, YAML or TOML text and keeps
// every other byte: comments, order, indentation, quotes, line ends and byte order mark stay
// unchanged.
//
// A path names a value by keys joined with dots, list items by their index from 0:
// "train.groups.0.lr". A dot that belongs to a key is written `\.`.
//
// Values are string, bool, int64, float64 and nil; Get also returns []any and map[string]any for
// values that contain others. If a splice could be wrong (aliases, block scalars, duplicate
// keys), an *Error with the position is returned and nothing is changed. Every result is parsed
// again and compared before it is returned.
package patch

import (
	"bytes"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// A Format is a syntax of configuration files.
type Format string

// The formats.
const (
	JSON Format = "JSON" // with comments and trailing commas
	YAML Format = "YAML"
	TOML Format = "TOML"
)

// FormatOf finds a file's format by its name or, if the name has no known ending, by its first
// byte.
func FormatOf(name string, text []byte) (Format, bool) {
	switch strings.ToLower(path.Ext(name)) {
	case ".json", ".jsonc", ".json5", ".hjson":
		return JSON, true
	case ".yaml", ".yml":
		return YAML, true
	case ".toml":
		return TOML, true
	}
	if trimmed := bytes.TrimSpace(withoutBOM(text)); len(trimmed) > 0 && trimmed[0] == '{' {
		return JSON, true
	}
	return "", false
}

// A Reason is the reason why a value cannot be read or changed.
type Reason string

// The reasons.
const (
	Syntax    Reason = "syntax"    // the text does not parse
	Duplicate Reason = "duplicate" // a key occurs twice in one object
	Shared    Reason = "shared"    // an anchor or alias: other places would change too
	Block     Reason = "block"     // a block or multi-line scalar
	Shape     Reason = "shape"     // the path runs through a value that is not an object or list
	Value     Reason = "value"     // the value cannot be written in this format
)

// An Error is the reason why a text cannot be read or changed, with the position.
type Error struct {
	Format       Format
	Reason       Reason
	Path         string // as given, or the wrong part of it
	Line, Column int    // from 1; 0 if there is no position
	Message      string
}

func (e *Error) Error() string {
	var b strings.Builder
	if e.Line > 0 {
		fmt.Fprintf(&b, "%d:%d: ", e.Line, e.Column)
	}
	if e.Path != "" {
		fmt.Fprintf(&b, "%s: ", e.Path)
	}
	b.WriteString(e.Message)
	return b.String()
}

// A syntax finds and splices values in one format.
type syntax interface {
	// decode returns the whole text as plain values, for one path or, if it is nil, for all.
	decode(text []byte, path []string) (any, error)
	// splice returns the text with the value at keys replaced or inserted.
	splice(text []byte, keys []string, value any) ([]byte, error)
}

func (f Format) syntax() syntax {
	switch f {
	case JSON:
		return jsonSyntax{}
	case YAML:
		return yamlSyntax{}
	case TOML:
		return tomlSyntax{}
	}
	return nil
}

// Decode returns the whole text as plain values.
func Decode(f Format, text []byte) (any, error) {
	return decode(f, text, nil)
}

func decode(f Format, text []byte, path []string) (any, error) {
	s := f.syntax()
	if s == nil {
		return nil, &Error{Format: f, Reason: Syntax, Message: "neither JSON, YAML nor TOML"}
	}
	return s.decode(text, path)
}

// Get returns the value at a path, and whether there is one. In YAML a key elsewhere may occur
// twice: the last counts, as in PyYAML.
func Get(f Format, text []byte, at string) (any, bool, error) {
	keys := Split(at)
	root, err := decode(f, text, keys)
	if err != nil {
		return nil, false, err
	}
	return lookUp(f, root, keys)
}

// Set returns the text with the value at a path replaced, or inserted in the style of its
// neighbours if it is missing. A value that is already there changes no byte.
func Set(f Format, text []byte, at string, value any) ([]byte, error) {
	value, err := plain(f, at, value)
	if err != nil {
		return nil, err
	}
	root, err := Decode(f, text)
	if err != nil {
		return nil, err
	}
	keys := Split(at)
	old, there, err := lookUp(f, root, keys)
	if err != nil {
		return nil, err
	}
	if there && reflect.DeepEqual(old, value) {
		return bytes.Clone(text), nil
	}
	switch old.(type) {
	case map[string]any, []any:
		return nil, &Error{Format: f, Reason: Shape, Path: at, Message: "holds other values, and is not a single one"}
	}
	next, err := f.syntax().splice(text, keys, value)
	if err != nil {
		return nil, err
	}
	return next, check(f, root, next, keys, value)
}

// check parses the new text and compares it with the old values changed in memory, so that a
// wrong splice is never returned.
func check(f Format, root any, next []byte, keys []string, value any) error {
	got, err := Decode(f, next)
	if err != nil {
		return fmt.Errorf("parse the changed %s: %w", f, err)
	}
	want := replaced(root, keys, value)
	if !reflect.DeepEqual(got, want) {
		return &Error{Format: f, Reason: Shape, Path: Join(keys), Message: "the value cannot be changed without changing others"}
	}
	return nil
}

// plain turns a value into one of the types that decode returns.
func plain(f Format, at string, value any) (any, error) {
	switch v := value.(type) {
	case nil:
		if f == TOML {
			return nil, &Error{Format: f, Reason: Value, Path: at, Message: "TOML has no null"}
		}
		return nil, nil
	case string, bool, int64, float64:
		return v, nil
	case int:
		return int64(v), nil
	}
	return nil, &Error{Format: f, Reason: Value, Path: at, Message: fmt.Sprintf("a %T cannot be written", value)}
}

// Split divides a path into its keys.
func Split(at string) []string {
	var keys []string
	var key strings.Builder
	for i := 0; i < len(at); i++ {
		switch {
		case at[i] == '\\' && i+1 < len(at) && (at[i+1] == '.' || at[i+1] == '\\'):
			i++
			key.WriteByte(at[i])
		case at[i] == '.':
			keys = append(keys, key.String())
			key.Reset()
		default:
			key.WriteByte(at[i])
		}
	}
	return append(keys, key.String())
}

var escaped = strings.NewReplacer(`\`, `\\`, `.`, `\.`)

// Join is the inverse of Split.
func Join(keys []string) string {
	quoted := make([]string, len(keys))
	for i, key := range keys {
		quoted[i] = escaped.Replace(key)
	}
	return strings.Join(quoted, ".")
}

var bom = []byte("\xef\xbb\xbf")

func withoutBOM(text []byte) []byte { return bytes.TrimPrefix(text, bom) }

// lookUp follows keys through plain values.
func lookUp(f Format, root any, keys []string) (any, bool, error) {
	for i, key := range keys {
		switch node := root.(type) {
		case map[string]any:
			next, there := node[key]
			if !there {
				return nil, false, nil
			}
			root = next
		case []any:
			n, err := index(key, len(node))
			if err != nil {
				return nil, false, &Error{Format: f, Reason: Shape, Path: Join(keys[:i+1]), Message: err.Error()}
			}
			root = node[n]
		case nil:
			return nil, false, nil // an empty file, or a key without a value
		default:
			return nil, false, &Error{Format: f, Reason: Shape, Path: Join(keys[:i]),
				Message: fmt.Sprintf("holds %v, so that there is no %q in it", node, key)}
		}
	}
	return root, true, nil
}

// index reads a list index and compares it with the list's length.
func index(key string, length int) (int, error) {
	n, err := strconv.Atoi(key)
	if err != nil || n < 0 || strconv.Itoa(n) != key {
		return 0, fmt.Errorf("%q is not an index of a list", key)
	}
	if n >= length {
		return 0, fmt.Errorf("index %d of a list of %d", n, length)
	}
	return n, nil
}

// replaced returns root with the value at keys replaced or inserted.
func replaced(root any, keys []string, value any) any {
	if len(keys) == 0 {
		return value
	}
	switch node := root.(type) {
	case []any:
		n, err := index(keys[0], len(node))
		if err != nil {
			return root
		}
		node = slices.Clone(node)
		node[n] = replaced(node[n], keys[1:], value)
		return node
	case map[string]any:
		node = maps.Clone(node)
		node[keys[0]] = replaced(node[keys[0]], keys[1:], value)
		return node
	}
	return map[string]any{keys[0]: replaced(nil, keys[1:], value)}
}

// position is the line and column, both from 1, of an offset. Columns count bytes.
func position(text []byte, offset int) (line, column int) {
	offset = min(max(offset, 0), len(text))
	before := text[:offset]
	line = 1 + bytes.Count(before, []byte("\n"))
	return line, offset - bytes.LastIndexByte(before, '\n')
}

// spliced returns text with text[from:to] replaced.
func spliced(text []byte, from, to int, with string) []byte {
	next := make([]byte, 0, len(text)+len(with))
	next = append(next, text[:from]...)
	next = append(next, with...)
	return append(next, text[to:]...)
}

// lineEnd is the line end that the text uses: the first one that occurs.
func lineEnd(text []byte) string {
	if i := bytes.IndexByte(text, '\n'); i > 0 && text[i-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}
