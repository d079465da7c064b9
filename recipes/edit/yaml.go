package edit

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/gpurun/gpurun/launcher/lazy"
)

// parseYAML reads a document of YAML.
func parseYAML(text []byte) (value any, root *node, err error) {
	if bytes.HasPrefix(text, []byte{0}) {
		return nil, nil, &Error{Message: "is not UTF-8"}
	}
	y := yamlText{text: text, lines: lineStarts(text)}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document, second yaml.Node
	err = quietly(func() error { return decoder.Decode(&document) })
	if errors.Is(err, io.EOF) || err == nil && len(document.Content) == 0 {
		return nil, &node{style: block, last: len(text)}, nil
	}
	if err == nil {
		if err = quietly(func() error { return decoder.Decode(&second) }); err == nil {
			message := "a second document starts here, so that a path is ambiguous"
			return nil, nil, &Error{Line: second.Line, Column: second.Column, Message: message}
		}
	}
	if errors.Is(err, io.EOF) {
		root = y.node(nil, document.Content[0])
		err = quietly(func() error { return document.Decode(&value) })
	}
	if err != nil {
		return nil, nil, yamlError(err)
	}
	return value, root, nil
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

// yamlError separates the position from the parser's message.
func yamlError(err error) error {
	line, message := 0, strings.TrimPrefix(err.Error(), "yaml: ")
	if at, what, found := strings.Cut(strings.TrimPrefix(message, "line "), ": "); found {
		if n, err := strconv.Atoi(at); err == nil {
			line, message = n, what
		}
	}
	return notWell(YAML, line, min(line, 1), message)
}

// yamlText is a text with the offsets of its lines.
type yamlText struct {
	text  []byte
	lines []int
}

// node is the value of a key, which is nil for an item. Of equal keys all but the last are removed, as PyYAML does.
func (y yamlText) node(key, value *yaml.Node) *node {
	n := &node{end: -1}
	if n.start, n.key = y.offset(value), y.offset(value); key != nil {
		n.key = y.offset(key)
	}
	n.last = n.key
	if value.Kind == yaml.MappingNode || value.Kind == yaml.SequenceNode {
		if n.style = block; value.Style&yaml.FlowStyle != 0 {
			n.style, n.end = flow, len(y.text)
		}
	}
	switch {
	case value.Kind == yaml.MappingNode:
		known := map[string]int{}
		for i := 0; i < len(value.Content); i += 2 {
			name := value.Content[i]
			if before, twice := known[name.Value]; twice {
				value.Content = slices.Delete(value.Content, before, before+2)
				i -= 2
			}
			if known[name.Value] = i; name.Tag != "!!merge" {
				n.add(name.Value, y.node(name, value.Content[i+1]))
			}
		}
	case value.Kind == yaml.SequenceNode:
		for i, item := range value.Content {
			n.add(strconv.Itoa(i), y.node(nil, item)).item = true
		}
	}
	for _, inner := range value.Content {
		n.last = max(n.last, y.offset(inner))
	}
	for _, child := range n.children {
		n.last = max(n.last, child.last)
	}
	if n.children == nil {
		y.measure(n, key, value)
	}
	return n
}

// onOneLine matches what a scalar in quotes, or an empty mapping, can be on one line.
var onOneLine = lazy.Regexp(`^("(?:[^"\\\r\n]|\\.)*"|'(?:[^'\r\n]|'')*'|\{[ \t]*\})`)

// measure finds the end of a scalar on one line, or of an empty mapping.
func (y yamlText) measure(n *node, key, value *yaml.Node) {
	quoted := value.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0
	rest, word := y.text[n.start:], []byte(value.Value)
	switch {
	case value.Anchor != "" || value.Style&(yaml.TaggedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 ||
		value.Kind == yaml.SequenceNode:
		return
	case quoted || value.Kind == yaml.MappingNode:
		word = onOneLine().Find(rest)
	case value.Value == "" && key != nil: // nothing follows the colon
		name := &node{start: n.key}
		y.measure(name, nil, key)
		if name.end > 0 && name.end < len(y.text) && y.text[name.end] == ':' {
			n.start, n.end = name.end+1, name.end+1
		}
		return
	}
	if word != nil && bytes.HasPrefix(rest, word) {
		n.end = n.start + len(word)
	}
}

// offset is where a node starts. Columns count characters.
func (y yamlText) offset(n *yaml.Node) int {
	at := y.lines[min(max(n.Line-1, 0), len(y.lines)-1)]
	for column := n.Column; column > 1 && at < len(y.text); column-- {
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
