package edit

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/gpurun/gpurun/launcher/lazy"
)

// A node is a key, an item or a table of a text, with its position in bytes.
type node struct {
	key, start, end int // of its name, or of an item's value; of its value, whose end is -1 if it cannot be replaced
	item            bool
	style           nodeStyle
	// twice: the key occurred before.
	twice    bool
	children map[string]*node
	// last is on the last line of a block; 0: the block has no line of its own.
	last int
}

// A nodeStyle is how the entries of a node are written.
type nodeStyle int

const (
	single nodeStyle = iota // it has no entries
	flow                    // in brackets, separated by commas
	block                   // each on its line
)

// add adds an entry; one that is there already is replaced.
func (n *node) add(name string, child *node) *node {
	if n.children == nil {
		n.children = map[string]*node{}
	}
	_, child.twice = n.children[name]
	n.children[name] = child
	return child
}

// ends returns the first and the last entry.
func (n *node) ends() (first, last *node) {
	for _, child := range n.children {
		if first == nil || child.key < first.key {
			first = child
		}
		if last == nil || child.key > last.key {
			last = child
		}
	}
	return first, last
}

// follow goes down from a node, and returns the keys that are not there.
func (n *node) follow(keys []string) (*node, []string) {
	for len(keys) > 0 && n.children[keys[0]] != nil {
		n, keys = n.children[keys[0]], keys[1:]
	}
	return n, keys
}

// look returns the value at a path of a text.
func (n *node) look(text []byte, value any, keys []string) (any, bool, error) {
	for i := range keys {
		if at, rest := n.follow(keys[:i+1]); len(rest) == 0 && at.twice {
			line, column := position(text, at.key)
			return nil, false, &Error{Join(keys[:i+1]), line, column, "the key occurs twice"}
		}
	}
	return lookUp(value, keys)
}

// An editor drafts a change of one value in a text.
type editor struct {
	Format
	text []byte
	root *node
}

// drafts returns texts of which the first with the right values counts; nil if the value is not on one line.
func (e editor) drafts(keys []string, value any) [][]byte {
	n, rest := e.root.follow(keys)
	switch {
	case n.style == block && e.Format == TOML:
		return e.inTables(keys, value)
	case n.style == block:
		return e.ofBlock(n, e.entry(rest, value))
	case len(rest) > 0 && len(n.children) > 0:
		return e.ofFlow(n, e.entry(rest, value))
	case n.end < n.start:
		return nil
	}
	old := string(e.text[n.start:n.end])
	word := e.word(value, strings.ContainsAny(old[:min(1, len(old))], `"'`))
	if len(rest) > 0 {
		word = "{" + e.entry(rest, value) + "}"
		if n.style == flow && e.Format != YAML { // there may be a comment in it
			word = old[:len(old)-1] + word[1:]
		}
	}
	if e.Format == YAML && n.start > 0 && e.text[n.start-1] == ':' {
		word = " " + word // nothing follows the colon
	}
	return [][]byte{spliced(e.text, n.start, n.end, word)}
}

// entry writes a key with its value, and tables around the value, on one line.
func (e editor) entry(keys []string, value any) string {
	word := e.word(value, false)
	if e.Format == TOML {
		return TOMLKey(keys...) + " = " + word
	}
	for i, key := range slices.Backward(keys) {
		if word = e.word(key, false) + ": " + word; i > 0 {
			word = "{" + word + "}"
		}
	}
	return word
}

// ofBlock drafts an entry behind the last line of a block or, where that is within a text, before the first.
func (e editor) ofBlock(n *node, entry string) [][]byte {
	first, _ := n.ends()
	if first == nil {
		return [][]byte{lineBehind(e.text, n.last, entry)}
	}
	line := strings.Repeat(" ", first.key-lineStart(e.text, first.key)) + entry
	start := lineStart(e.text, first.key)
	return [][]byte{lineBehind(e.text, n.last, line), spliced(e.text, start, start, line+lineEnd(e.text))}
}

var commaBehind = lazy.Regexp(`^[ \t\r\n]*,`)

// ofFlow drafts an entry behind the last of those in brackets or, where a comment is in the way, before the first.
func (e editor) ofFlow(n *node, entry string) (drafts [][]byte) {
	first, last := n.ends()
	between, indent := " ", indentation(e.text, first.key)
	lines := len(bytes.TrimSpace(e.text[lineStart(e.text, first.key):first.key])) == 0
	if lines {
		between = lineEnd(e.text) + indent
	}
	if at := last.end; at >= 0 {
		comma := ","
		if commaBehind().Match(e.text[at:n.end]) {
			comma = ""
		}
		if draft := spliced(e.text, at, at, comma); lines {
			drafts = append(drafts, lineBehind(draft, at, indentation(e.text, last.key)+entry))
		} else {
			drafts = append(drafts, spliced(e.text, at, at, ", "+entry))
		}
	}
	return append(drafts, spliced(e.text, first.key, first.key, entry+","+between))
}

// position is the line and column, both from 1, of an offset. Columns count bytes.
func position(text []byte, offset int) (line, column int) {
	offset = min(max(offset, 0), len(text))
	return 1 + bytes.Count(text[:offset], []byte("\n")), 1 + offset - lineStart(text, offset)
}

// lineStart is where the line of an offset begins.
func lineStart(text []byte, at int) int { return 1 + bytes.LastIndexByte(text[:at], '\n') }

// indentation is the white space at the start of the line of an offset.
func indentation(text []byte, at int) string {
	line := text[lineStart(text, at):at]
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
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
		return append(bytes.Clone(text), line+nl...)
	}
	return append(bytes.Clone(text), nl+line...)
}

// parseJSON reads JSON with comments and trailing commas.
func parseJSON(text []byte) (value any, root *node, err error) {
	tree, err := hujson.Parse(bytes.Clone(text)) // Standardize changes it
	if err != nil {
		line, column, message := 0, 0, strings.TrimPrefix(err.Error(), "hujson: ")
		if at, what, found := strings.Cut(strings.TrimPrefix(message, "line "), ": "); found {
			l, c, _ := strings.Cut(at, ", column ")
			line, _ = strconv.Atoi(l)
			column, _ = strconv.Atoi(c)
			message = what
		}
		return nil, nil, notWell(JSON, line, column, message)
	}
	root = jsonNode(tree)
	tree.Standardize()
	decoder := json.NewDecoder(bytes.NewReader(tree.Pack()))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return nil, nil, notWell(JSON, 0, 0, err.Error())
	}
	return value, root, nil
}

func jsonNode(v hujson.Value) *node {
	n := &node{key: v.StartOffset, start: v.StartOffset, end: v.EndOffset}
	switch value := v.Value.(type) {
	case *hujson.Object:
		n.style = flow
		for _, member := range value.Members {
			child := jsonNode(member.Value)
			child.key = member.Name.StartOffset
			n.add(member.Name.Value.(hujson.Literal).String(), child)
		}
	case *hujson.Array:
		n.style = flow
		for i, element := range value.Elements {
			n.add(strconv.Itoa(i), jsonNode(element)).item = true
		}
	}
	return n
}
