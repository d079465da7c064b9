package patch

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/pelletier/go-toml/v2/unstable"
)

// A Position is where a key of a TOML text, or an item of an array, is in the text: byte offsets,
// both of the header for a table.
type Position struct {
	Key, Value int
	Item       bool
}

// Positions returns the first position of every key, table and item of a TOML text, by its path.
// It has those before the first syntax error.
func Positions(text []byte) map[string]Position {
	t, _ := parseTOML(text)
	return t.positions
}

// tomlText is a TOML text with the positions of its tables and values.
type tomlText struct {
	text      []byte
	sections  []*tomlSection // the root first, then one for each header
	entries   []*tomlEntry
	positions map[string]Position
}

// A tomlSection is the text after one header, or before the first.
type tomlSection struct {
	path []string // items of arrays of tables by their index
	end  int      // the end of its last key and value, or of its header's brackets
	head bool     // it has a header
	used bool     // it has a key
}

// A tomlEntry is one value with its position.
type tomlEntry struct {
	path    []string
	section *tomlSection
	key     int // where its key starts
	parts   int // number of keys joined by dots before the value
	value   span
	inline  bool // inside an inline table or an array
	table   bool // the value is an inline table
}

type span struct{ start, end int }

func (t *tomlText) fault(at int, reason Reason, keys []string, message string) error {
	line, column := position(withoutBOM(t.text), at-t.shift())
	return &Error{TOML, reason, Join(keys), line, column, message}
}

func (t *tomlText) shift() int { return len(t.text) - len(withoutBOM(t.text)) }

// parseTOML finds the positions in a text that the decoder accepts; with an error, those before
// the error.
func parseTOML(text []byte) (*tomlText, error) {
	t := &tomlText{text: text, sections: []*tomlSection{{}}, positions: map[string]Position{}}
	arrays := map[string]int{} // items so far of each array of tables
	var parser unstable.Parser
	parser.Reset(withoutBOM(text))
	for parser.NextExpression() {
		node := parser.Expression()
		switch node.Kind {
		case unstable.Table, unstable.ArrayTable:
			keys, starts, end := t.keys(node.Key())
			path, starts := resolve(keys, starts, arrays, node.Kind == unstable.ArrayTable)
			t.place(path, starts, starts[len(starts)-1])
			shut := bytes.IndexByte(text[end:], ']') + end + 1
			if node.Kind == unstable.ArrayTable {
				shut++
			}
			t.sections = append(t.sections, &tomlSection{path: path, end: shut, head: true})
		case unstable.KeyValue:
			section := t.sections[len(t.sections)-1]
			entry := t.keyValue(node, section.path, section, false)
			section.end, section.used = entry.value.end, true
		}
	}
	if err := parser.Error(); err != nil {
		return t, tomlError(err)
	}
	return t, nil
}

// keys reads a dotted key, with the starts of its parts and the end of the last.
func (t *tomlText) keys(parts unstable.Iterator) (keys []string, starts []int, end int) {
	for parts.Next() {
		part := parts.Node()
		at := int(part.Raw.Offset) + t.shift()
		keys, starts, end = append(keys, string(part.Data)), append(starts, at), at+int(part.Raw.Length)
	}
	return keys, starts, end
}

// place records the positions of the last parts of a path; an item has the start of its array.
func (t *tomlText) place(path []string, starts []int, value int) {
	for i, start := range starts {
		above := len(path) - len(starts) + i + 1
		p := Position{start, start, i > 0 && start == starts[i-1]}
		if above == len(path) {
			p.Value = value
		}
		if _, known := t.positions[Join(path[:above])]; !known {
			t.positions[Join(path[:above])] = p
		}
	}
}

// resolve turns a header's keys into a path, and their starts into those of its parts: an array of
// tables is followed by the index of its newest item.
func resolve(keys []string, at []int, arrays map[string]int, item bool) (path []string, starts []int) {
	for i, key := range keys {
		path, starts = append(path, key), append(starts, at[i])
		name := Join(path)
		if item && i == len(keys)-1 {
			arrays[name]++
		}
		if n := arrays[name]; n > 0 {
			path, starts = append(path, strconv.Itoa(n-1)), append(starts, at[i])
		}
	}
	return path, starts
}

// keyValue records a key with its value, and the entries inside the value.
func (t *tomlText) keyValue(node *unstable.Node, above []string, section *tomlSection, inline bool) *tomlEntry {
	keys, starts, end := t.keys(node.Key())
	entry := &tomlEntry{path: append(slices.Clone(above), keys...), section: section, key: starts[0], parts: len(keys), inline: inline}
	t.entries = append(t.entries, entry)
	entry.table = node.Value().Kind == unstable.InlineTable
	value := t.skip(end, " \t=")
	t.place(entry.path, starts, value)
	entry.value = t.value(node.Value(), value, entry.path, section)
	return entry
}

// value finds a value's end, and records the entries inside it.
func (t *tomlText) value(node *unstable.Node, start int, path []string, section *tomlSection) span {
	switch node.Kind {
	case unstable.String:
		return span{start, start + int(node.Raw.Length)}
	case unstable.InlineTable:
		end := start + 1
		children := node.Children()
		for children.Next() {
			end = t.keyValue(children.Node(), path, section, true).value.end
		}
		return span{start, t.skip(end, " \t\r\n,") + 1}
	case unstable.Array:
		end, n := start+1, 0
		children := node.Children()
		for children.Next() {
			item := children.Node()
			if item.Kind == unstable.Comment {
				continue
			}
			entry := &tomlEntry{path: append(slices.Clone(path), strconv.Itoa(n)), section: section, inline: true, table: item.Kind == unstable.InlineTable}
			t.entries = append(t.entries, entry)
			at := t.skip(end, " \t\r\n,")
			t.positions[Join(entry.path)] = Position{at, at, true}
			entry.value = t.value(item, at, entry.path, section)
			end, n = entry.value.end, n+1
		}
		return span{start, t.skip(end, " \t\r\n,") + 1}
	}
	return span{start, start + len(node.Data)}
}

// skip passes over any of the given bytes, and over comments if line ends are among them.
func (t *tomlText) skip(at int, over string) int {
	comments := bytes.IndexByte([]byte(over), '\n') >= 0
	for at < len(t.text) {
		switch {
		case bytes.IndexByte([]byte(over), t.text[at]) >= 0:
			at++
		case comments && t.text[at] == '#':
			n := bytes.IndexByte(t.text[at:], '\n')
			if n < 0 {
				return len(t.text)
			}
			at += n
		default:
			return at
		}
	}
	return at
}

// find returns the entry with exactly that path, or nil.
func (t *tomlText) find(keys []string) *tomlEntry {
	for _, entry := range t.entries {
		if slices.Equal(entry.path, keys) {
			return entry
		}
	}
	return nil
}

// insert adds a key next to its neighbours: inside an inline table, after the last key of its
// table, next to keys with the same dots, or in a new table at the end.
func (t *tomlText) insert(keys []string, value any) ([]byte, error) {
	last := len(keys) - 1
	word := tomlWord(value, false)
	for i := last; i > 0; i-- {
		if above := t.find(keys[:i]); above != nil && above.table {
			return t.intoInline(above, TOMLKey(keys[i:]...)+" = "+word), nil
		}
	}
	if section := t.section(keys[:last]); section != nil && (last > 0 || section.used) {
		return t.behind(section.end, section.path, TOMLKey(keys[last])+" = "+word), nil
	}
	if near := t.dotted(keys[:last]); near != nil {
		above := len(near.path) - near.parts
		return t.behind(near.value.end, near.section.path, TOMLKey(keys[above:]...)+" = "+word), nil
	}
	nl := lineEnd(t.text)
	if last == 0 {
		return t.first(TOMLKey(keys[0]) + " = " + word + nl), nil
	}
	table := "[" + TOMLKey(keys[:last]...) + "]" + nl + TOMLKey(keys[last]) + " = " + word + nl
	end := t.text
	switch {
	case len(bytes.TrimSpace(withoutBOM(end))) == 0:
	case !bytes.HasSuffix(end, []byte("\n")):
		table = nl + nl + table
	default:
		table = nl + table
	}
	return spliced(end, len(end), len(end), table), nil
}

// section returns the table with that path to which a key can be added, or nil.
func (t *tomlText) section(path []string) *tomlSection {
	for _, section := range t.sections {
		if slices.Equal(section.path, path) {
			return section
		}
	}
	return nil
}

// dotted returns the last entry whose dotted key makes the table at path.
func (t *tomlText) dotted(path []string) *tomlEntry {
	var found *tomlEntry
	for _, entry := range t.entries {
		above := len(entry.path) - entry.parts
		if !entry.inline && len(path) > above && len(entry.path) > len(path) && slices.Equal(entry.path[:len(path)], path) {
			found = entry
		}
	}
	return found
}

// behind adds a line after the line with an offset, with the indentation of its table's lines.
func (t *tomlText) behind(at int, table []string, line string) []byte {
	nl := lineEnd(t.text)
	indent := ""
	for _, entry := range t.entries {
		if !entry.inline && slices.Equal(entry.section.path, table) {
			start := max(1+bytes.LastIndexByte(t.text[:entry.key], '\n'), t.shift())
			indent = string(t.text[start:entry.key])
		}
	}
	n := bytes.IndexByte(t.text[at:], '\n')
	if n < 0 {
		return spliced(t.text, len(t.text), len(t.text), nl+indent+line)
	}
	return spliced(t.text, at+n+1, at+n+1, indent+line+nl)
}

// first puts a line at the top, after the comments that open the file and before the first table.
func (t *tomlText) first(line string) []byte {
	at := t.shift()
	for at < len(t.text) && t.text[at] == '#' {
		n := bytes.IndexByte(t.text[at:], '\n')
		if n < 0 {
			return spliced(t.text, len(t.text), len(t.text), lineEnd(t.text)+line)
		}
		at += n + 1
	}
	if at < len(t.text) && t.text[at] == '[' {
		line += lineEnd(t.text)
	}
	return spliced(t.text, at, at, line)
}

// intoInline adds an entry before an inline table's closing brace.
func (t *tomlText) intoInline(above *tomlEntry, entry string) []byte {
	shut := above.value.end - 1
	inside := bytes.TrimRight(t.text[above.value.start+1:shut], " \t")
	at := above.value.start + 1 + len(inside)
	if len(bytes.TrimSpace(inside)) == 0 {
		return spliced(t.text, above.value.start+1, shut, " "+entry+" ")
	}
	return spliced(t.text, at, at, ", "+entry)
}
