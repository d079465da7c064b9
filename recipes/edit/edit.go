// Package edit reads and changes single values in a command line or in a JSON, YAML or TOML text. Comments,
// order and layout around the value stay, so that a diff shows the change and little else. Of a train.toml or a
// recipe it reports all errors together, each at its position.
//
// A path names a value by keys joined with dots, list items by their index from 0:
// "train.groups.0.lr". A dot that belongs to a key is written `\.`.
//
// Values are string, bool, int64, float64 and nil; Get also returns []any and map[string]any for
// values that contain others. Every result is parsed again and compared before it is returned.
package edit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tailscale/hujson"

	"github.com/gpurun/gpurun/launcher/lazy"
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
	if bytes.HasPrefix(bytes.TrimSpace(withoutBOM(text)), []byte("{")) {
		return JSON, true
	}
	return "", false
}

// An Error is the reason why a text cannot be read or changed, with the position.
type Error struct {
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

// notWell is the error for a text that does not parse.
func notWell(f Format, line, column int, message string) *Error {
	return &Error{Line: line, Column: column, Message: "is not " + string(f) + ": " + message}
}

// parse reads a text: its values, and the tree of their positions.
func (f Format) parse(text []byte) (value any, root *node, err error) {
	if !utf8.Valid(text) {
		return nil, nil, &Error{Message: "is not UTF-8"}
	}
	switch f {
	case JSON:
		value, root, err = parseJSON(text)
	case YAML:
		value, root, err = parseYAML(text)
	case TOML:
		value, root, err = parseTOML(text)
	default:
		err = &Error{Message: "neither JSON, YAML nor TOML"}
	}
	return plain(value), root, err
}

// plain turns the values of all decoders into the same types, and others into their text.
func plain(value any) any {
	switch v := value.(type) {
	case nil, string, bool, int64:
		return v
	case int:
		return int64(v)
	case float64:
		if !math.IsNaN(v) { // which does not equal itself
			return v
		}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		x, _ := v.Float64()
		return x
	case []string:
		list := make([]any, len(v))
		for i, text := range v {
			list[i] = text
		}
		return list
	case []any:
		for i, item := range v {
			v[i] = plain(item)
		}
		return v
	case map[string]any:
		for key, inner := range v {
			v[key] = plain(inner)
		}
		return v
	case map[any]any:
		table := make(map[string]any, len(v))
		for key, inner := range v {
			table[fmt.Sprint(key)] = plain(inner)
		}
		return table
	}
	return fmt.Sprint(value)
}

// Decode returns the whole text as plain values. Of a key that occurs twice the last counts, as in Python.
func Decode(f Format, text []byte) (any, error) {
	value, _, err := f.parse(withoutBOM(text))
	return value, err
}

// Get returns the value at a path, and whether there is one. A key on the path must not occur twice.
func Get(f Format, text []byte, at string) (any, bool, error) {
	text = withoutBOM(text)
	value, root, err := f.parse(text)
	if err != nil {
		return nil, false, err
	}
	return root.look(text, value, Split(at))
}

// Set returns the text with the value at a path replaced, or inserted next to its neighbours if
// it is missing. A value that is already there changes no byte. A list of texts replaces a list.
func Set(f Format, text []byte, at string, value any) ([]byte, error) {
	value = plain(value)
	switch v := value.(type) {
	case nil:
		if f == TOML {
			return nil, &Error{Path: at, Message: "TOML has no null"}
		}
	case float64:
		if math.IsInf(v, 0) {
			return nil, &Error{Path: at, Message: "is not a finite number"}
		}
	}
	body, keys := withoutBOM(text), Split(at)
	before, root, err := f.parse(body)
	if err != nil {
		return nil, err
	}
	old, there, err := root.look(body, before, keys)
	if err != nil {
		return nil, err
	}
	if there && reflect.DeepEqual(old, value) {
		return bytes.Clone(text), nil
	}
	if there && reflect.TypeOf(old) != reflect.TypeOf(value) && !isSingle(old) {
		return nil, &Error{Path: at, Message: "holds other values, and is not a single one"}
	}
	drafts := editor{f, body, root}.drafts(keys, value)
	if drafts == nil {
		n, _ := root.follow(keys)
		line, column := position(body, n.start)
		return nil, &Error{at, line, column,
			"runs over several lines, or has a tag, an anchor or an alias: change it by hand"}
	}
	return firstRight(f, text, replaced(before, keys, value), keys, drafts)
}

// isSingle reports whether a plain value contains no others.
func isSingle(value any) bool {
	switch value.(type) {
	case map[string]any, []any:
		return false
	}
	return true
}

// firstRight returns the first of several drafts that has the wanted values, with the byte order
// mark of the text.
func firstRight(f Format, text []byte, want any, keys []string, drafts [][]byte) ([]byte, error) {
	for _, draft := range drafts {
		if got, err := Decode(f, draft); err == nil && reflect.DeepEqual(got, want) {
			return slices.Concat(text[:len(text)-len(withoutBOM(text))], draft), nil
		}
	}
	return nil, &Error{Path: Join(keys), Message: "cannot be changed without changing other values: change it by hand"}
}

// word writes a scalar or a list. Without quote, YAML's texts have quotes only where they need them.
func (f Format) word(value any, quote bool) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case string:
		if f == YAML && !quote && plainText(v) {
			return v
		}
		// The escapes of JSON are YAML's and TOML's, too.
		return controls().ReplaceAllStringFunc(string(hujson.String(v)),
			func(char string) string { return fmt.Sprintf(`\u%04x`, []rune(char)[0]) })
	case float64: // with a point, without which YAML 1.1 reads a text
		digits, exponent, has := strings.Cut(strconv.FormatFloat(v, 'g', -1, 64), "e")
		if !strings.Contains(digits, ".") {
			digits += ".0"
		}
		if has {
			digits += "e" + exponent
		}
		return digits
	case []any:
		words := make([]string, len(v))
		for i, item := range v {
			words[i] = f.word(item, true)
		}
		return "[" + strings.Join(words, ", ") + "]"
	}
	return fmt.Sprint(value)
}

// controls are the characters that JSON allows in a text, and terminals interpret.
var controls = lazy.Regexp(`[\x{7f}-\x{9f}]`)

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

func withoutBOM(text []byte) []byte { return bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")) }

// lookUp follows keys through plain values.
func lookUp(root any, keys []string) (any, bool, error) {
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
				return nil, false, &Error{Path: Join(keys[:i+1]), Message: err.Error()}
			}
			root = node[n]
		case nil:
			return nil, false, nil // an empty file, or a key without a value
		default:
			message := fmt.Sprintf("holds %v, so that there is no %q in it", node, key)
			return nil, false, &Error{Path: Join(keys[:i]), Message: message}
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
