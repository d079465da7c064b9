package edit

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/gpurun/gpurun/launcher/lazy"
)

func parseTOML(text []byte) (value any, root *node, err error) {
	root, again := tomlTree(text)
	table := map[string]any{}
	if err = toml.Unmarshal(text, &table); err == nil {
		return table, root, nil
	}
	line, column := 0, 0
	at, message := tomlError(text, again, err)
	if at >= 0 {
		line, column = position(text, at)
	}
	return nil, nil, notWell(TOML, line, column, message)
}

// tomlError separates the offset, -1 if it is not known, from the decoder's message; again is a key that is defined
// again, if there is one.
func tomlError(text []byte, again *node, err error) (at int, message string) {
	message = strings.TrimPrefix(err.Error(), "toml: ")
	var decode *toml.DecodeError
	switch {
	case errors.As(err, &decode):
		line, column := decode.Position()
		lines := lineStarts(text)
		return min(lines[min(line, len(lines))-1]+column-1, len(text)), message
	case again != nil:
		return again.key, message
	}
	return -1, message
}

// tomlText is a TOML text while its tree is built.
type tomlText struct {
	text  []byte
	again *node
}

// tomlTree finds the positions in a text; with a syntax error, those before it. again is the first key that is
// defined again.
func tomlTree(text []byte) (root, again *node) {
	t := &tomlText{text: text}
	root = &node{style: block}
	section := root
	var parser unstable.Parser
	parser.Reset(text)
	for parser.NextExpression() {
		switch expression := parser.Expression(); expression.Kind {
		case unstable.Table, unstable.ArrayTable:
			var end int
			section, end = t.down(root, expression.Key(), expression.Kind == unstable.ArrayTable)
			if section.last > 0 && t.again == nil {
				t.again = &node{key: end - 1}
			}
			section.last = end + bytes.IndexByte(text[end:], ']') + 1
		case unstable.KeyValue:
			section.last = t.keyValue(section, expression)
		}
	}
	return root, t.again
}

// down goes to the table of a header, and returns the end of its name. An array of tables gets an item more.
func (t *tomlText) down(n *node, parts unstable.Iterator, array bool) (section *node, end int) {
	for parts.Next() {
		part := parts.Node()
		n, end = t.table(n, part), int(part.Raw.Offset+part.Raw.Length)
		if items := len(n.children); array && parts.IsLast() {
			at := int(part.Raw.Offset)
			n = n.add(strconv.Itoa(items), &node{key: at, start: at, style: block, item: true})
		} else if item := n.children[strconv.Itoa(items-1)]; item != nil && item.item {
			n = item
		}
	}
	return n, end
}

// table is the table of a part of a key, which is added if there is none.
func (t *tomlText) table(n *node, part *unstable.Node) *node {
	if child := n.children[string(part.Data)]; child != nil {
		if child.style == single && t.again == nil {
			t.again = &node{key: int(part.Raw.Offset)}
		}
		return child
	}
	return n.add(string(part.Data), &node{key: int(part.Raw.Offset), start: int(part.Raw.Offset), style: block})
}

// keyValue adds a key with its value to a table, and returns the end of the value.
func (t *tomlText) keyValue(n *node, expression *unstable.Node) (end int) {
	for parts := expression.Key(); parts.Next(); {
		part := parts.Node()
		end = int(part.Raw.Offset + part.Raw.Length)
		if !parts.IsLast() {
			n = t.table(n, part)
			continue
		}
		value := t.value(expression.Value(), t.skip(end, " \t="))
		value.key, end = int(part.Raw.Offset), value.end
		if n.add(string(part.Data), value).twice && t.again == nil {
			t.again = value
		}
	}
	return end
}

// value is a value at an offset.
func (t *tomlText) value(value *unstable.Node, at int) *node {
	n := &node{key: at, start: at, end: at + 1}
	switch value.Kind {
	case unstable.String:
		n.end = at + int(value.Raw.Length)
	case unstable.InlineTable:
		n.style = flow
		for children := value.Children(); children.Next(); {
			n.end = t.keyValue(n, children.Node())
		}
		n.end = t.skip(n.end, " \t\r\n,") + 1
	case unstable.Array:
		n.style = flow
		for children := value.Children(); children.Next(); {
			if item := children.Node(); item.Kind != unstable.Comment {
				child := t.value(item, t.skip(n.end, " \t\r\n,"))
				child.item = true
				n.end = n.add(strconv.Itoa(len(n.children)), child).end
			}
		}
		n.end = t.skip(n.end, " \t\r\n,") + 1
	default:
		n.end = at + len(value.Data)
	}
	return n
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

// comments matches the comment that opens a file.
var comments = lazy.Regexp(`\A(#[^\n]*\n)+`)

// inTables drafts a key in its table, in a new table, or with dots in a table above.
func (e editor) inTables(keys []string, value any) (drafts [][]byte) {
	nl, last := lineEnd(e.text), len(keys)-1
	for i := last; i >= 0; i-- {
		entry := e.entry(keys[i:], value)
		if n, rest := e.root.follow(keys[:i]); len(rest) == 0 && n.last > 0 {
			drafts = append(drafts, lineBehind(e.text, n.last, indentation(e.text, n.lastKey())+entry))
		} else if i == 0 { // before the first table, below the comment that opens the file
			top := len(comments().Find(e.text))
			if bytes.HasPrefix(bytes.TrimSpace(e.text[top:]), []byte("[")) {
				entry += nl
			}
			drafts = append(drafts, spliced(e.text, top, top, entry+nl))
		}
		if i == last && last > 0 {
			table := "[" + TOMLKey(keys[:last]...) + "]" + nl + e.entry(keys[last:], value) + nl
			before := bytes.TrimRight(e.text, "\r\n")
			if len(before) > 0 {
				table = nl + nl + table
			}
			drafts = append(drafts, append(slices.Clip(before), table...))
		}
	}
	return drafts
}

// lastKey is where the last line of a table that has a key of it begins.
func (n *node) lastKey() (at int) {
	for _, child := range n.children {
		if child.style == block {
			at = max(at, child.lastKey())
		} else if child.end <= n.last {
			at = max(at, child.key)
		}
	}
	return at
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

// TOMLValue writes a value, which may be a list or a table, on one line.
func TOMLValue(value any) string {
	table, is := value.(map[string]any)
	if !is {
		return TOML.word(plain(value), true)
	}
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(table)) {
		parts = append(parts, TOMLKey(key)+" = "+TOMLValue(table[key]))
	}
	return "{ " + strings.Join(parts, ", ") + " }"
}

// DecodeTOML parses TOML into generic values: map[string]any, []any, string, int64,
// float64, bool and times. The fault is the position at which the text is not TOML.
func DecodeTOML(text []byte) (map[string]any, *FileFault) {
	body, root := withoutBOM(text), map[string]any{}
	err := toml.Unmarshal(body, &root)
	if err == nil {
		return root, nil
	}
	_, again := tomlTree(body)
	at, message := tomlError(body, again, err)
	f := faultAt(text, lineStarts(text), at+len(text)-len(body))
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
