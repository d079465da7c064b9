package edit

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/gpurun/gpurun/launcher/lazy"
)

func decodeTOML(text []byte) (any, error) {
	if !utf8.Valid(text) {
		return nil, &Error{Message: "is not UTF-8"}
	}
	table := map[string]any{}
	if err := toml.Unmarshal(text, &table); err != nil {
		return nil, tomlError(err)
	}
	return plainTOML(table), nil
}

// tomlError separates position and key from the decoder's error.
func tomlError(err error) error {
	e := notWell(TOML, 0, 0, strings.TrimPrefix(err.Error(), "toml: "))
	var decode *toml.DecodeError
	if errors.As(err, &decode) {
		e.Line, e.Column = decode.Position()
		e.Path = Join(decode.Key())
	}
	return e
}

// plainTOML turns times, and numbers that do not equal themselves, into their text.
func plainTOML(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			v[key] = plainTOML(inner)
		}
		return v
	case []any:
		for i, inner := range v {
			v[i] = plainTOML(inner)
		}
		return v
	case float64:
		if !math.IsNaN(v) {
			return v
		}
	case string, bool, int64:
		return v
	}
	return fmt.Sprint(value)
}

// A Position is where a key of a TOML text, or an item of an array, is in the text: byte offsets,
// of the header for a table.
type Position struct {
	Key, Value, End int
	Item            bool
	inline          bool // the value is an inline table
}

// tomlText is a TOML text with the positions of its keys, tables and items.
type tomlText struct {
	text      []byte
	sections  []tomlSection // the root first, then one for each header
	positions map[string]Position
}

// A tomlSection is the text after one header, or before the first.
type tomlSection struct {
	path []string // items of arrays of tables by their index
	end  int      // the end of its last value, or of its header; 0 for a root without keys
}

// Positions returns the first position of every key, table and item of a TOML text, by its path.
// It has those before the first syntax error.
func Positions(text []byte) map[string]Position {
	body := withoutBOM(text)
	t, _ := parseTOML(body)
	for path, p := range t.positions {
		shift := len(text) - len(body)
		p.Key, p.Value, p.End = p.Key+shift, p.Value+shift, p.End+shift
		t.positions[path] = p
	}
	return t.positions
}

// parseTOML finds the positions in a text; with an error, those before the error.
func parseTOML(text []byte) (*tomlText, error) {
	t := &tomlText{text: text, sections: []tomlSection{{}}, positions: map[string]Position{}}
	items := map[string]int{} // so far of each array of tables
	var parser unstable.Parser
	parser.Reset(text)
	for parser.NextExpression() {
		switch node := parser.Expression(); node.Kind {
		case unstable.Table, unstable.ArrayTable:
			var path []string
			end := t.keys(node.Key(), func(key string, start int, last bool) {
				path = append(path, key)
				t.place(path, Position{Key: start, Value: start})
				if last && node.Kind == unstable.ArrayTable {
					items[Join(path)]++
				}
				if n := items[Join(path)]; n > 0 {
					path = append(path, strconv.Itoa(n-1))
					t.place(path, Position{Key: start, Value: start, Item: true})
				}
			})
			end += bytes.IndexByte(text[end:], ']') + 1
			t.sections = append(t.sections, tomlSection{path, end})
		case unstable.KeyValue:
			section := &t.sections[len(t.sections)-1]
			section.end = t.keyValue(node, section.path)
		}
	}
	if err := parser.Error(); err != nil {
		return t, tomlError(err)
	}
	return t, nil
}

// keys visits the parts of a dotted key, and returns the end of the last.
func (t *tomlText) keys(parts unstable.Iterator, visit func(key string, start int, last bool)) (end int) {
	for parts.Next() {
		part := parts.Node()
		end = int(part.Raw.Offset + part.Raw.Length)
		visit(string(part.Data), int(part.Raw.Offset), parts.IsLast())
	}
	return end
}

// place records a position, if it is the first of its path.
func (t *tomlText) place(path []string, p Position) {
	if _, known := t.positions[Join(path)]; !known {
		t.positions[Join(path)] = p
	}
}

// keyValue records a key below a path, with its value, and returns the end of the value.
func (t *tomlText) keyValue(node *unstable.Node, above []string) (end int) {
	path, key := slices.Clone(above), 0
	end = t.keys(node.Key(), func(part string, start int, last bool) {
		path, key = append(path, part), start
		if !last {
			t.place(path, Position{Key: start, Value: start})
		}
	})
	return t.value(node.Value(), Position{Key: key, Value: t.skip(end, " \t=")}, path)
}

// value records a value, and what is inside it, and returns its end.
func (t *tomlText) value(node *unstable.Node, p Position, path []string) (end int) {
	switch end = p.Value + 1; node.Kind {
	case unstable.String:
		end = p.Value + int(node.Raw.Length)
	case unstable.InlineTable:
		p.inline = true
		for children := node.Children(); children.Next(); {
			end = t.keyValue(children.Node(), path)
		}
		end = t.skip(end, " \t\r\n,") + 1
	case unstable.Array:
		n := 0
		for children := node.Children(); children.Next(); {
			if item := children.Node(); item.Kind != unstable.Comment {
				at := t.skip(end, " \t\r\n,")
				end = t.value(item, Position{Key: at, Value: at, Item: true}, append(path[:len(path):len(path)], strconv.Itoa(n)))
				n++
			}
		}
		end = t.skip(end, " \t\r\n,") + 1
	default:
		end = p.Value + len(node.Data)
	}
	p.End = end
	t.place(path, p)
	return end
}

// skip passes over any of the given bytes, and over comments if line ends are among them.
func (t *tomlText) skip(at int, over string) int {
	for at < len(t.text) {
		switch {
		case strings.IndexByte(over, t.text[at]) >= 0:
			at++
		case t.text[at] == '#' && strings.Contains(over, "\n"):
			at += bytes.IndexByte(append(t.text[at:len(t.text):len(t.text)], '\n'), '\n')
		default:
			return at
		}
	}
	return at
}

// editTOML drafts the change: the value in its place or, without one, a key in an inline table, in
// its table, in a new table, or with dots in a table above.
func editTOML(text []byte, keys []string, word string) (drafts [][]byte, err error) {
	t, err := parseTOML(text)
	if err != nil {
		return nil, err
	}
	if p, known := t.positions[Join(keys)]; known {
		return [][]byte{spliced(text, p.Value, p.End, word)}, nil
	}
	last := len(keys) - 1
	for i := last; i > 0; i-- {
		if p := t.positions[Join(keys[:i])]; p.inline {
			inside := bytes.TrimRight(text[p.Value+1:p.End-1], " \t")
			entry := " " + TOMLKey(keys[i:]...) + " = " + word
			if len(inside) > 0 {
				entry = "," + entry
			}
			return [][]byte{slices.Concat(text[:p.Value+1], inside, []byte(entry+" "), text[p.End-1:])}, nil
		}
	}
	nl := lineEnd(text)
	for i := last; i >= 0; i-- {
		entry := TOMLKey(keys[i:]...) + " = " + word
		for _, section := range t.sections {
			switch {
			case !slices.Equal(section.path, keys[:i]):
			case section.end > 0:
				drafts = append(drafts, lineBehind(text, section.end, indentation(text, t.lastKey(section))+entry))
			default: // before the first table, below the comment that opens the file
				top := len(comments().Find(text))
				if blank := bytes.TrimSpace(text[top:]); len(blank) > 0 && blank[0] == '[' {
					entry += nl
				}
				drafts = append(drafts, spliced(text, top, top, entry+nl))
			}
		}
		if i == last && last > 0 {
			table := "[" + TOMLKey(keys[:last]...) + "]" + nl + TOMLKey(keys[last]) + " = " + word + nl
			before := bytes.TrimRight(text, "\r\n")
			if len(before) > 0 {
				table = nl + nl + table
			}
			drafts = append(drafts, append(slices.Clip(before), table...))
		}
	}
	return drafts, nil
}

// lastKey is where the last line of a section that has a key of it begins to have text.
func (t *tomlText) lastKey(section tomlSection) (start int) {
	for _, p := range t.positions {
		if p.End == section.end && !p.Item {
			start = p.Key
		}
	}
	return start
}

// comments matches the comment that opens a file.
var comments = lazy.Regexp(`\A(#[^\n]*\n)+`)

// SetTOML returns a TOML text with another value, which may be a list, at a path that has one.
func SetTOML(text []byte, keys []string, value string) ([]byte, error) {
	p, known := Positions(text)[Join(keys)]
	if !known {
		return nil, &Error{Path: Join(keys), Message: "is not there"}
	}
	root, err := Decode(TOML, text)
	if err != nil {
		return nil, err
	}
	alone, err := Decode(TOML, []byte("value = "+value))
	if err != nil {
		return nil, err
	}
	want := replaced(root, keys, alone.(map[string]any)["value"])
	return firstRight(TOML, nil, want, keys, [][]byte{spliced(text, p.Value, p.End, value)})
}

var bareKey = lazy.Regexp(`^[A-Za-z0-9_-]+$`)

// TOMLKey writes a key, in quotes if it needs them.
func TOMLKey(keys ...string) string {
	words := slices.Clone(keys)
	for i, key := range words {
		if !bareKey().MatchString(key) {
			words[i] = TOML.word(key, true)
		}
	}
	return strings.Join(words, ".")
}
