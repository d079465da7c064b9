package document

import (
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// A keyPosition is the position of one key of a TOML text, with those of the keys below it.
// Elements of arrays are children named by their index.
type keyPosition struct {
	key, value int // byte offsets, both of the header for a table
	element    bool
	children   map[string]*keyPosition
	count      int // elements so far, for an array
}

// child returns the position below p under a name, and makes it if needed.
func (p *keyPosition) child(name string, at int) *keyPosition {
	if c, known := p.children[name]; known {
		return c
	}
	if p.children == nil {
		p.children = map[string]*keyPosition{}
	}
	c := &keyPosition{key: at, value: at}
	p.children[name] = c
	return c
}

// append adds an element to an array.
func (p *keyPosition) append(at int) *keyPosition {
	c := p.child(strconv.Itoa(p.count), at)
	c.element = true
	p.count++
	return c
}

// last is the position that a header's path goes through: for an array of tables, its newest
// element.
func (p *keyPosition) last() *keyPosition {
	if p.count > 0 {
		return p.children[strconv.Itoa(p.count-1)]
	}
	return p
}

// index finds the positions of all keys in a TOML text that is known to be valid. If the two
// parsers disagree about that, it has the keys before the difference.
func index(text []byte) *keyPosition {
	root := &keyPosition{}
	table := root
	var p unstable.Parser
	p.Reset(text)
	for p.NextExpression() {
		switch e := p.Expression(); e.Kind {
		case unstable.Table:
			table, _ = descend(root, e.Key())
			table = table.last()
		case unstable.ArrayTable:
			array, at := descend(root, e.Key())
			table = array.append(at)
		case unstable.KeyValue:
			indexPair(&p, table, e)
		}
	}
	return root
}

// descend follows a dotted key, and returns the offset of its last part.
func descend(from *keyPosition, key unstable.Iterator) (*keyPosition, int) {
	p, at := from, 0
	for key.Next() {
		at = int(key.Node().Raw.Offset)
		p = p.last().child(string(key.Node().Data), at)
	}
	return p, at
}

// indexPair adds a key and its value to a table.
func indexPair(parser *unstable.Parser, table *keyPosition, pair *unstable.Node) {
	p, at := descend(table, pair.Key())
	end := at
	for key := pair.Key(); key.Next(); {
		end = int(key.Node().Raw.Offset + key.Node().Raw.Length)
	}
	// Between a key and its value there are only blanks and an equals sign.
	text := parser.Data()
	for end < len(text)-1 && strings.IndexByte(" \t=", text[end]) >= 0 {
		end++
	}
	p.key, p.value = at, end
	indexValue(parser, p, pair.Value())
}

// indexValue adds the keys inside an array or an inline table.
func indexValue(parser *unstable.Parser, p *keyPosition, value *unstable.Node) {
	switch value.Kind {
	case unstable.InlineTable:
		for pairs := value.Children(); pairs.Next(); {
			indexPair(parser, p, pairs.Node())
		}
	case unstable.Array:
		for elements := value.Children(); elements.Next(); {
			e := elements.Node()
			indexValue(parser, p.append(offset(parser, e, p.value)), e)
		}
	}
}

// offset is the start of an element of an array. The parser does not report it for an array
// inside an array, which is assumed to start at its first element.
func offset(parser *unstable.Parser, n *unstable.Node, fallback int) int {
	switch n.Kind {
	case unstable.String, unstable.InlineTable:
		return int(n.Raw.Offset)
	case unstable.Array:
		if first := n.Child(); first.Valid() {
			return offset(parser, first, fallback)
		}
		return fallback
	default:
		return int(parser.Range(n.Data).Offset)
	}
}

// locate finds a key path, or the nearest existing table, and writes the path as in the file:
// dots, quotes around keys that need them, indices in brackets.
func (p *keyPosition) locate(path []string, atValue bool) (offset int, dotted string) {
	var b strings.Builder
	missing := false
	for _, name := range path {
		next := p.children[name]
		switch {
		case next != nil && next.element:
			b.WriteString("[" + name + "]")
		case b.Len() > 0:
			b.WriteString("." + spell(name))
		default:
			b.WriteString(spell(name))
		}
		if next == nil || missing {
			missing = true
			continue
		}
		p = next
	}
	if atValue && !missing {
		return p.value, b.String()
	}
	return p.key, b.String()
}

// spell writes one part of a key, in quotes if TOML requires them.
func spell(name string) string {
	bare := name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == ""
	if bare {
		return name
	}
	return strconv.Quote(name)
}
