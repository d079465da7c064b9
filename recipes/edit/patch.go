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
	"fmt"
	"maps"
	"math"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/tailscale/hujson"
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

// Decode returns the whole text as plain values.
func Decode(f Format, text []byte) (any, error) { return decode(f, text, nil) }

// decode reads the whole text; a key that occurs twice is an error where the path needs it. A nil path needs all.
func decode(f Format, text []byte, path []string) (any, error) {
	body := withoutBOM(text)
	switch f {
	case JSON:
		return decodeJSON(body)
	case YAML:
		return decodeYAML(body, path)
	case TOML:
		return decodeTOML(body)
	}
	return nil, &Error{Message: "neither JSON, YAML nor TOML"}
}

// Get returns the value at a path, and whether there is one. In YAML a key elsewhere may occur
// twice: the last counts, as in PyYAML.
func Get(f Format, text []byte, at string) (any, bool, error) {
	keys := Split(at)
	root, err := decode(f, text, keys)
	if err != nil {
		return nil, false, err
	}
	return lookUp(root, keys)
}

// Set returns the text with the value at a path replaced, or inserted next to its neighbours if
// it is missing. A value that is already there changes no byte.
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
	old, there, err := lookUp(root, keys)
	if err != nil {
		return nil, err
	}
	if there && reflect.DeepEqual(old, value) {
		return bytes.Clone(text), nil
	}
	switch old.(type) {
	case map[string]any, []any:
		return nil, &Error{Path: at, Message: "holds other values, and is not a single one"}
	}
	body := withoutBOM(text)
	var drafts [][]byte
	switch f {
	case JSON:
		drafts, err = editJSON(body, keys, value)
	case YAML:
		drafts, err = editYAML(body, keys, value)
	case TOML:
		drafts, err = editTOML(body, keys, f.word(value, true))
	}
	if err != nil {
		return nil, err
	}
	return firstRight(f, text, replaced(root, keys, value), keys, drafts)
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

// plain turns a value into one of the types that Decode returns.
func plain(f Format, at string, value any) (any, error) {
	switch v := value.(type) {
	case nil:
		if f == TOML {
			return nil, &Error{Path: at, Message: "TOML has no null"}
		}
		return nil, nil
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, &Error{Path: at, Message: "is not a finite number"}
		}
		return v, nil
	case string, bool, int64:
		return v, nil
	case int:
		return int64(v), nil
	}
	return nil, &Error{Path: at, Message: fmt.Sprintf("a %T cannot be written", value)}
}

// word writes a scalar. Without quote, YAML's texts have quotes only where they need them.
func (f Format) word(value any, quote bool) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case string:
		if f == YAML && !quote && plainText(v) {
			return v
		}
		// The escapes of JSON are YAML's and TOML's, too.
		return strings.ReplaceAll(string(hujson.String(v)), "\x7f", `\u007f`)
	case float64: // with a point, without which YAML 1.1 reads a text
		digits, exponent, has := strings.Cut(strconv.FormatFloat(v, 'g', -1, 64), "e")
		if !strings.Contains(digits, ".") {
			digits += ".0"
		}
		if has {
			digits += "e" + exponent
		}
		return digits
	}
	return fmt.Sprint(value)
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

// position is the line and column, both from 1, of an offset. Columns count bytes.
func position(text []byte, offset int) (line, column int) {
	offset = min(max(offset, 0), len(text))
	before := text[:offset]
	line = 1 + bytes.Count(before, []byte("\n"))
	return line, offset - bytes.LastIndexByte(before, '\n')
}

// spliced returns text with text[from:to] replaced.
func spliced(text []byte, from, to int, with string) []byte {
	return slices.Concat(text[:from], []byte(with), text[to:])
}

// lineEnd is the line end that the text uses: the first one that occurs.
func lineEnd(text []byte) string {
	if i := bytes.IndexByte(text, '\n'); i > 0 && text[i-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}

// lineBehind returns the text with a line after the line of an offset.
func lineBehind(text []byte, at int, line string) []byte {
	nl := lineEnd(text)
	if n := bytes.IndexByte(text[at:], '\n'); n >= 0 {
		return spliced(text, at+n+1, at+n+1, line+nl)
	}
	if len(text) == 0 || text[len(text)-1] == '\n' {
		return spliced(text, len(text), len(text), line+nl)
	}
	return spliced(text, len(text), len(text), nl+line)
}

// indentation is the white space at the start of the line of an offset.
func indentation(text []byte, at int) string {
	line := text[1+bytes.LastIndexByte(text[:at], '\n') : at]
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}
