package patch

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"
)

// tomlSyntax reads TOML. Values come from the decoder; their positions in the text from the
// expressions of its parser (tomltext.go).
type tomlSyntax struct{}

func (tomlSyntax) decode(text []byte, _ []string) (any, error) {
	body := withoutBOM(text)
	if !utf8.Valid(body) {
		return nil, &Error{Format: TOML, Reason: Syntax, Message: "is not UTF-8"}
	}
	table := map[string]any{}
	if err := toml.Unmarshal(body, &table); err != nil {
		return nil, tomlDuplicate(text, tomlError(err))
	}
	return tomlPlain(table), nil
}

// tomlDuplicate finds the position of a duplicate key, which the decoder does not report.
func tomlDuplicate(text []byte, e *Error) error {
	if e.Reason != Duplicate {
		return e
	}
	t, err := parseTOML(text)
	if err != nil {
		return e
	}
	seen := map[string]bool{}
	for _, entry := range t.entries {
		name := Join(entry.path)
		if seen[name] {
			return t.fault(entry.key, Duplicate, entry.path, e.Message)
		}
		seen[name] = true
	}
	for _, section := range t.sections[1:] {
		name := Join(section.path)
		if seen[name] {
			return t.fault(section.end-1, Duplicate, section.path, e.Message)
		}
		seen[name] = true
	}
	return e
}

// tomlError separates position and key from a decoder's error.
func tomlError(err error) *Error {
	e := &Error{Format: TOML, Reason: Syntax, Message: "is not TOML: " + strings.TrimPrefix(err.Error(), "toml: ")}
	var decode *toml.DecodeError
	if errors.As(err, &decode) {
		e.Line, e.Column = decode.Position()
		e.Path = Join(decode.Key())
	}
	if strings.Contains(err.Error(), "already") {
		e.Reason, e.Message = Duplicate, "the key occurs twice"
	}
	return e
}

// tomlPlain turns times, and numbers that do not equal themselves, into their text.
func tomlPlain(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			v[key] = tomlPlain(inner)
		}
		return v
	case []any:
		for i, inner := range v {
			v[i] = tomlPlain(inner)
		}
		return v
	case float64:
		if math.IsNaN(v) {
			return "nan"
		}
		return v
	case string, bool, int64:
		return v
	}
	return fmt.Sprint(value)
}

func (tomlSyntax) splice(text []byte, keys []string, value any) ([]byte, error) {
	t, err := parseTOML(text)
	if err != nil {
		return nil, err
	}
	if entry := t.find(keys); entry != nil {
		return t.replace(entry, value)
	}
	return t.insert(keys, value)
}

// replace replaces a scalar by another one.
func (t *tomlText) replace(entry *tomlEntry, value any) ([]byte, error) {
	old := string(t.text[entry.value.start:entry.value.end])
	if strings.HasPrefix(old, `"""`) || strings.HasPrefix(old, "'''") {
		return nil, t.fault(entry.value.start, Block, entry.path, "runs over several lines")
	}
	return spliced(t.text, entry.value.start, entry.value.end, tomlWord(value, strings.HasPrefix(old, "'"))), nil
}

// tomlWord writes a scalar; a text in single quotes if they are wanted and possible.
func tomlWord(value any, single bool) string {
	switch v := value.(type) {
	case bool:
		return strconv.FormatBool(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return tomlFloat(v)
	}
	text, _ := value.(string)
	if single && printable(text) && !strings.Contains(text, "'") {
		return "'" + text + "'"
	}
	return strings.ReplaceAll(jsonText(text), "\x7f", `\u007F`) // TOML's other escapes are JSON's
}

func tomlFloat(x float64) string {
	text := strings.TrimPrefix(strings.ToLower(strconv.FormatFloat(x, 'g', -1, 64)), "+")
	if strings.ContainsAny(text, ".ein") { // a point, an exponent, inf or nan
		return text
	}
	return text + ".0"
}

// SetTOML returns a TOML text with another value, which may be a list, at a path that has one.
func SetTOML(text []byte, keys []string, value string) ([]byte, error) {
	t, err := parseTOML(text)
	if err != nil {
		return nil, err
	}
	entry := t.find(keys)
	if entry == nil {
		return nil, &Error{Format: TOML, Reason: Shape, Path: Join(keys), Message: "is not there"}
	}
	root, err := Decode(TOML, text)
	if err != nil {
		return nil, err
	}
	alone, err := Decode(TOML, []byte("value = "+value))
	if err != nil {
		return nil, err
	}
	next := slices.Concat(text[:entry.value.start], []byte(value), text[entry.value.end:])
	return next, check(TOML, root, next, keys, alone.(map[string]any)["value"])
}

// TOMLKey writes a key, in quotes if it needs them.
func TOMLKey(keys ...string) string {
	words := slices.Clone(keys)
	for i, key := range words {
		bare := key != ""
		for _, r := range key {
			bare = bare && (r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z')
		}
		if !bare {
			words[i] = tomlWord(key, false)
		}
	}
	return strings.Join(words, ".")
}
