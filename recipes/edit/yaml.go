package edit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/gpurun/gpurun/launcher/lazy"
)

// parseYAML returns the document's root, nil for an empty document.
func parseYAML(text []byte) (*yaml.Node, error) {
	if !utf8.Valid(text) || bytes.HasPrefix(text, []byte{0}) {
		return nil, &Error{Message: "is not UTF-8"}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document, second yaml.Node
	err := quietly(func() error { return decoder.Decode(&document) })
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	if err == nil {
		if err = quietly(func() error { return decoder.Decode(&second) }); err == nil {
			return nil, yamlError(&second, nil, "a second document starts here, so that a path is ambiguous")
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, yamlSyntaxError(err)
	}
	if len(document.Content) == 0 {
		return nil, nil
	}
	return document.Content[0], nil
}

// quietly turns the parser's panics for some malformed input into errors.
func quietly(parse func() error) (err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("yaml: the text cannot be parsed")
		}
	}()
	return parse()
}

// yamlSyntaxError separates the position from the parser's message.
func yamlSyntaxError(err error) error {
	line, message := 0, strings.TrimPrefix(err.Error(), "yaml: ")
	if at, what, found := strings.Cut(strings.TrimPrefix(message, "line "), ": "); found {
		if n, err := strconv.Atoi(at); err == nil {
			line, message = n, what
		}
	}
	return notWell(YAML, line, min(line, 1), message)
}

func yamlError(n *yaml.Node, at []string, message string) error {
	return &Error{Path: Join(at), Line: n.Line, Column: n.Column, Message: message}
}

func decodeYAML(text []byte, path []string) (any, error) {
	root, err := parseYAML(text)
	if err != nil || root == nil {
		return nil, err
	}
	if err := unique(root, nil, path); err != nil {
		return nil, err
	}
	var value any
	if err := quietly(func() error { return root.Decode(&value) }); err != nil {
		return nil, yamlSyntaxError(err)
	}
	return plainYAML(value), nil
}

// unique removes all but the last of equal keys, as PyYAML does; on the way to the path, or below
// it, they are an error.
func unique(n *yaml.Node, at, path []string) error {
	step := 1
	if n.Kind == yaml.MappingNode {
		step = 2
	}
	seen := map[string]int{}
	for i := step - 1; i < len(n.Content); i += step {
		key, inner := n.Content[i-step+1], append(at[:len(at):len(at)], strconv.Itoa(i))
		if step == 2 {
			inner[len(at)] = key.Value
			before, twice := seen[key.Value]
			seen[key.Value] = i
			if common := min(len(inner), len(path)); twice && (path == nil || slices.Equal(inner[:common], path[:common])) {
				return yamlError(key, inner, "the key occurs twice")
			} else if twice {
				n.Content = slices.Delete(n.Content, before-1, before+1)
				i -= step
			}
		}
		if err := unique(n.Content[i], inner, path); err != nil {
			return err
		}
	}
	return nil
}

// plainYAML turns whole numbers, times and tables into plain values.
func plainYAML(value any) any {
	switch v := value.(type) {
	case int:
		return int64(v)
	case float64:
		if math.IsNaN(v) {
			return ".nan" // a NaN does not equal itself
		}
	case time.Time:
		return v.Format(time.RFC3339Nano)
	case []any:
		for i, item := range v {
			v[i] = plainYAML(item)
		}
	case map[string]any:
		for key, inner := range v {
			v[key] = plainYAML(inner)
		}
	case map[any]any:
		table := make(map[string]any, len(v))
		for key, inner := range v {
			table[fmt.Sprint(key)] = plainYAML(inner)
		}
		return table
	}
	return value
}

// editYAML drafts the change in the lines of the text, where the positions of the nodes allow it.
func editYAML(text []byte, keys []string, value any) ([][]byte, error) {
	root, err := parseYAML(text)
	if err != nil {
		return nil, err
	}
	y := yamlText{text, root}
	if root == nil {
		return [][]byte{lineBehind(text, len(text), y.block(keys, value, 0))}, nil
	}
	var key *yaml.Node
	at, rest := root, keys
	for {
		if err := y.own(at, keys[:len(keys)-len(rest)]); err != nil {
			return nil, err
		}
		if len(rest) == 0 {
			break
		}
		childKey, child := yamlChild(at, rest[0])
		if child == nil {
			break
		}
		key, at, rest = childKey, child, rest[1:]
	}
	var drafts [][]byte
	if len(rest) > 0 && at.Kind == yaml.MappingNode && len(at.Content) > 0 {
		drafts = y.insert(at, rest, value)
	} else {
		drafts = y.replace(key, at, rest, value)
	}
	if drafts == nil {
		return nil, yamlError(at, keys, "runs over several lines, or has a tag or an anchor: change it by hand")
	}
	return drafts, nil
}

// own refuses a node that several places of the document share.
func (y yamlText) own(n *yaml.Node, at []string) error {
	switch {
	case n.Kind == yaml.AliasNode:
		return yamlError(n, at, "is the alias *"+n.Value+": a change would also change the other uses of its anchor")
	case n.Anchor != "" && aliased(y.root, n):
		return yamlError(n, at, "has the anchor &"+n.Anchor+", to which an alias refers: that would change, too")
	}
	return nil
}

// aliased reports whether an alias refers to a node.
func aliased(n, to *yaml.Node) bool {
	return n.Alias == to || slices.ContainsFunc(n.Content, func(child *yaml.Node) bool { return aliased(child, to) })
}

// yamlChild returns the value of a key that is not merged, or an item, or nil. The key is nil for
// an item.
func yamlChild(n *yaml.Node, name string) (key, value *yaml.Node) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == name && n.Content[i].Tag != "!!merge" {
				return n.Content[i], n.Content[i+1]
			}
		}
	case yaml.SequenceNode:
		if i, err := index(name, len(n.Content)); err == nil {
			return nil, n.Content[i]
		}
	}
	return nil, nil
}

// yamlText is a text with its tree.
type yamlText struct {
	text []byte
	root *yaml.Node
}

// replace drafts another scalar, or a mapping with the keys, in place of a scalar or an empty mapping.
func (y yamlText) replace(key, n *yaml.Node, keys []string, value any) [][]byte {
	quoted := n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0
	word := YAML.word(value, quoted)
	if text, is := value.(string); is && n.Style&yaml.SingleQuotedStyle != 0 && bare().MatchString("x"+text) {
		word = "'" + text + "'"
	}
	if len(keys) > 0 {
		word = y.flow(keys, value)
	}
	start, end := y.span(n)
	if n.Value == "" && n.Kind == yaml.ScalarNode && !quoted && key != nil { // nothing behind the colon
		_, end = y.span(key)
		if end < 0 || end >= len(y.text) || y.text[end] != ':' {
			return nil
		}
		end++
		start, word = end, " "+word
	}
	if end < 0 {
		return nil
	}
	return [][]byte{spliced(y.text, start, end, word)}
}

// insert drafts an entry of a mapping: behind its last line or, where that is within a text, before
// its first.
func (y yamlText) insert(n *yaml.Node, keys []string, value any) [][]byte {
	first := n.Content[0]
	if n.Style&yaml.FlowStyle != 0 {
		entry, start := y.flow(keys, value), y.offset(first.Line, first.Column)
		return [][]byte{spliced(y.text, start, start, entry[1:len(entry)-1]+", ")}
	}
	block, start := y.block(keys, value, first.Column-1), y.offset(first.Line, 1)
	return [][]byte{
		lineBehind(y.text, y.offset(lastLineOf(n), 1), block),
		spliced(y.text, start, start, block+lineEnd(y.text)),
	}
}

// lastLineOf is the line at which the last of the nodes in a node begins.
func lastLineOf(n *yaml.Node) int {
	if len(n.Content) == 0 {
		return n.Line
	}
	return lastLineOf(n.Content[len(n.Content)-1])
}

// block writes entries on separate lines, the last without its end.
func (y yamlText) block(keys []string, value any, indent int) string {
	head := strings.Repeat(" ", indent) + YAML.word(keys[0], false) + ":"
	if len(keys) == 1 {
		return head + " " + YAML.word(value, false)
	}
	return head + lineEnd(y.text) + y.block(keys[1:], value, indent+2)
}

// flow writes a mapping on one line.
func (y yamlText) flow(keys []string, value any) string {
	word := YAML.word(value, false)
	if len(keys) > 1 {
		word = y.flow(keys[1:], value)
	}
	return "{" + YAML.word(keys[0], false) + ": " + word + "}"
}

// onOneLine matches what a scalar in quotes, or an empty mapping, can be on one line.
var onOneLine = lazy.Regexp(`^("(?:[^"\\\r\n]|\\.)*"|'(?:[^'\r\n]|'')*'|\{[ \t]*\})`)

// span is where a scalar on one line, or an empty mapping, is in the text; end is -1 for any other
// node.
func (y yamlText) span(n *yaml.Node) (start, end int) {
	start = y.offset(n.Line, n.Column)
	rest, word := y.text[start:], []byte(n.Value)
	if n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 || n.Kind == yaml.MappingNode {
		word = onOneLine().Find(rest)
	}
	if n.Anchor != "" || n.Style&(yaml.TaggedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 ||
		n.Kind == yaml.SequenceNode || word == nil || !bytes.HasPrefix(rest, word) {
		return 0, -1
	}
	return start, start + len(word)
}

// offset is where a node starts. Columns count characters.
func (y yamlText) offset(line, column int) (at int) {
	for ; line > 1; line-- {
		at += bytes.IndexByte(y.text[at:], '\n') + 1
	}
	for ; column > 1 && at < len(y.text); column-- {
		_, size := utf8.DecodeRune(y.text[at:])
		at += size
	}
	return at
}

// bare matches texts that need no quotes, unless they are numbers or truth values.
var bare = lazy.Regexp(`^[\w./][\w./+-]*$`)

// plainText reports whether a text keeps its meaning without quotes, also for readers of YAML
// 1.1, for whom yes and on are truth values.
func plainText(text string) bool {
	_, truth := Truth(text)
	var v any
	return !truth && bare().MatchString(text) && yaml.Unmarshal([]byte(text), &v) == nil && v == text
}
