package patch

import (
	"bytes"
	"strings"

	"go.yaml.in/yaml/v3"
)

// insert adds keys[0], and the mappings down to the value, to the mapping n. A null n, which is
// key's value, becomes a mapping.
func (y *yamlText) insert(key, n *yaml.Node, keys []string, value any) ([]byte, error) {
	switch {
	case empty(n):
		return y.behindColon(key, n, keys, flow(keys, value, false))
	case n.Kind == yaml.ScalarNode:
		start := y.offset(n)
		end, ok := y.end(n, start)
		if !ok {
			return nil, yamlError(n, Shape, keys, "cannot become a mapping")
		}
		return spliced(y.text, start, end, flow(keys, value, false)), nil
	case n.Kind != yaml.MappingNode:
		return nil, yamlError(n, Shape, keys, "is no mapping")
	case n.Style&yaml.FlowStyle != 0 || len(n.Content) == 0:
		return y.insertFlow(n, keys, value)
	}
	return y.insertBlock(n, keys, value)
}

// insertBlock adds lines after the last entry of a mapping whose entries have separate lines.
func (y *yamlText) insertBlock(n *yaml.Node, keys []string, value any) ([]byte, error) {
	last := n.Content[len(n.Content)-2]
	indent := last.Column - 1
	line := last.Line - 1
	for i := line + 1; i < len(y.lines); i++ {
		content := bytes.TrimRight(y.line(i), " \t\r\n")
		depth := len(content) - len(bytes.TrimLeft(content, " "))
		item := depth == indent && (bytes.HasPrefix(content[depth:], []byte("- ")) || string(content[depth:]) == "-")
		switch {
		case len(content) == 0, depth <= indent && content[depth] == '#':
			continue // it may precede more of the mapping, or the text after it
		case depth > indent || item:
			line = i
			continue
		}
		break
	}
	return y.addLines(line, y.block(keys, value, indent)), nil
}

// line is the text of a line with its end.
func (y *yamlText) line(i int) []byte {
	if i+1 < len(y.lines) {
		return y.text[y.lines[i]:y.lines[i+1]]
	}
	return y.text[y.lines[i]:]
}

// addLines puts lines, the last without its end, after a line.
func (y *yamlText) addLines(line int, lines string) []byte {
	nl := lineEnd(y.text)
	text := y.line(line)
	end := y.lines[line] + len(text)
	if bytes.HasSuffix(text, []byte("\n")) || bytes.HasSuffix(text, []byte("\r")) {
		return spliced(y.text, end, end, lines+nl)
	}
	return spliced(y.text, end, end, nl+lines)
}

// block writes entries on separate lines, the last without its end.
func (y *yamlText) block(keys []string, value any, indent int) string {
	head := strings.Repeat(" ", indent) + yamlWord(keys[0], 0) + ":"
	if len(keys) == 1 {
		return head + " " + yamlWord(value, 0)
	}
	return head + lineEnd(y.text) + y.block(keys[1:], value, indent+y.unit())
}

// unit is the indentation of an inner mapping in the document; 2 if it has none.
func (y *yamlText) unit() int {
	if y.root == nil || y.root.Kind != yaml.MappingNode {
		return 2
	}
	for i := 0; i+1 < len(y.root.Content); i += 2 {
		key, inner := y.root.Content[i], y.root.Content[i+1]
		if inner.Kind == yaml.MappingNode && inner.Style&yaml.FlowStyle == 0 && inner.Line > key.Line && inner.Column > key.Column {
			return inner.Column - key.Column
		}
	}
	return 2
}

// appendLine writes the first entries of a document that has none.
func (y *yamlText) appendLine(keys []string, value any) ([]byte, error) {
	lines := y.block(keys, value, 0)
	last := len(y.lines) - 1
	if len(y.line(last)) == 0 {
		return append(bytes.Clone(y.text), lines+lineEnd(y.text)...), nil
	}
	return y.addLines(last, lines), nil
}

// flow writes a mapping on one line.
func flow(keys []string, value any, quote bool) string {
	return "{" + flowEntry(keys, value, quote) + "}"
}

func flowEntry(keys []string, value any, quote bool) string {
	head := yamlWord(keys[0], 0)
	if quote {
		head = jsonText(keys[0])
	}
	if len(keys) > 1 {
		return head + ": " + flow(keys[1:], value, quote)
	}
	return head + ": " + yamlWord(value, 0)
}

// insertFlow adds an entry before the closing brace.
func (y *yamlText) insertFlow(n *yaml.Node, keys []string, value any) ([]byte, error) {
	start := y.offset(n)
	if n.Anchor != "" || n.Style&yaml.TaggedStyle != 0 || start >= len(y.text) || y.text[start] != '{' {
		return nil, yamlError(n, Shape, keys, "is a mapping with a tag or an anchor")
	}
	shut := flowEnd(y.text, start)
	if shut < 0 {
		return nil, yamlError(n, Shape, keys, "has no end that can be found")
	}
	quote := len(n.Content) > 0 && n.Content[0].Style&yaml.DoubleQuotedStyle != 0
	entry := flowEntry(keys, value, quote)
	inside := bytes.TrimRight(y.text[start+1:shut], " \t\r\n")
	at := start + 1 + len(inside)
	switch {
	case len(bytes.TrimSpace(inside)) == 0:
		return spliced(y.text, start+1, shut, entry), nil
	case inside[len(inside)-1] == ',':
		return spliced(y.text, at, at, " "+entry), nil
	}
	return spliced(y.text, at, at, ", "+entry), nil
}

// flowEnd is the offset of the brace or bracket that closes the one at start.
func flowEnd(text []byte, start int) int {
	depth := 0
	for i := start; i < len(text); i++ {
		switch text[i] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i
			}
		case '"', '\'':
			if n := quotedEnd(text[i:], text[i]); n > 0 && strings.IndexByte(" \t\n\r{[,:", text[i-1]) >= 0 {
				i += n - 1
			}
		case '#':
			if n := bytes.IndexByte(text[i:], '\n'); n >= 0 && (text[i-1] == ' ' || text[i-1] == '\t' || text[i-1] == '\n') {
				i += n
			}
		}
	}
	return -1
}
