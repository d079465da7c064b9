package patch

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// yamlText is a YAML text with the offsets of its lines.
type yamlText struct {
	text  []byte
	root  *yaml.Node
	lines []int // where each line starts
	// shared has the anchors that an alias refers to.
	shared map[*yaml.Node]bool
}

func newYAMLText(text []byte, root *yaml.Node) *yamlText {
	y := &yamlText{text: text, root: root, shared: map[*yaml.Node]bool{}}
	y.lines = append(y.lines, len(text)-len(withoutBOM(text)))
	for i := y.lines[0]; i < len(text); {
		n := lineBreak(text[i:])
		i += max(n, 1)
		if n > 0 {
			y.lines = append(y.lines, i)
		}
	}
	if root != nil {
		y.findAliases(root)
	}
	return y
}

// lineBreak is the length of the line break at the start of a text, as the parser counts lines:
// including NEL, LS and PS.
func lineBreak(text []byte) int {
	for _, b := range []string{"\r\n", "\n", "\r", "\u0085", "\u2028", "\u2029"} {
		if bytes.HasPrefix(text, []byte(b)) {
			return len(b)
		}
	}
	return 0
}

func (y *yamlText) findAliases(n *yaml.Node) {
	if n.Kind == yaml.AliasNode {
		y.shared[n.Alias] = true
		return
	}
	for _, child := range n.Content {
		y.findAliases(child)
	}
}

// own refuses a node that several places of the document share.
func (y *yamlText) own(n *yaml.Node, at []string) error {
	switch {
	case n.Kind == yaml.AliasNode:
		return yamlError(n, Shared, at, "is the alias *"+n.Value+": a change would also change the other uses of its anchor")
	case y.shared[n]:
		return yamlError(n, Shared, at, "has the anchor &"+n.Anchor+", to which an alias refers: that would change, too")
	}
	return nil
}

// offset is the start of a node. Columns count characters.
func (y *yamlText) offset(n *yaml.Node) int {
	if n.Line < 1 || n.Line > len(y.lines) {
		return len(y.text)
	}
	at := y.lines[n.Line-1]
	for column := 1; column < n.Column && at < len(y.text); column++ {
		_, size := utf8.DecodeRune(y.text[at:])
		at += size
	}
	return at
}

// end is the end of a scalar on one line; ok is false for all other nodes.
func (y *yamlText) end(n *yaml.Node, start int) (end int, ok bool) {
	rest := y.text[min(start, len(y.text)):]
	switch {
	case n.Kind != yaml.ScalarNode || n.Anchor != "" || n.Style&(yaml.TaggedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		return 0, false
	case n.Style&yaml.DoubleQuotedStyle != 0:
		end = quotedEnd(rest, '"')
	case n.Style&yaml.SingleQuotedStyle != 0:
		end = quotedEnd(rest, '\'')
	case bytes.HasPrefix(rest, []byte(n.Value)):
		end = len(n.Value)
	}
	return start + end, end > 0
}

// quotedEnd is the length of a quoted text on one line; 0: none.
func quotedEnd(text []byte, quote byte) int {
	if len(text) == 0 || text[0] != quote {
		return 0
	}
	for i := 1; i < len(text); i++ {
		switch {
		case lineBreak(text[i:]) > 0:
			return 0
		case text[i] == '\\' && quote == '"':
			i++
		case text[i] == quote && quote == '\'' && i+1 < len(text) && text[i+1] == quote:
			i++
		case text[i] == quote:
			return i + 1
		}
	}
	return 0
}

// replace replaces a scalar by another one.
func (y *yamlText) replace(key, n *yaml.Node, keys []string, value any) ([]byte, error) {
	if empty(n) {
		return y.behindColon(key, n, keys, yamlWord(value, 0))
	}
	start := y.offset(n)
	end, ok := y.end(n, start)
	switch {
	case ok:
		return spliced(y.text, start, end, yamlWord(value, n.Style)), nil
	case n.Anchor != "":
		return nil, yamlError(n, Shared, keys, "has the anchor &"+n.Anchor)
	case n.Style&yaml.TaggedStyle != 0:
		return nil, yamlError(n, Value, keys, "has the tag "+n.Tag)
	}
	return nil, yamlError(n, Block, keys, "runs over several lines")
}

// empty reports whether a key has no value.
func empty(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Value == "" && n.Style == 0 && n.Anchor == ""
}

// behindColon writes a word after a key that has no value.
func (y *yamlText) behindColon(key, n *yaml.Node, keys []string, word string) ([]byte, error) {
	if key != nil {
		end, ok := y.end(key, y.offset(key))
		for ok && end < len(y.text) && (y.text[end] == ' ' || y.text[end] == '\t') {
			end++
		}
		if ok && end < len(y.text) && y.text[end] == ':' {
			return spliced(y.text, end+1, end+1, " "+word), nil
		}
	}
	return nil, yamlError(n, Shape, keys, "is empty, and not behind a plain key")
}

// yamlWord writes a scalar; a text in the style of the replaced one if possible.
func yamlWord(value any, style yaml.Style) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return yamlFloat(v)
	}
	text, _ := value.(string)
	switch {
	case style&yaml.SingleQuotedStyle != 0 && printable(text):
		return "'" + strings.ReplaceAll(text, "'", "''") + "'"
	case style&yaml.DoubleQuotedStyle == 0 && plainSafe(text):
		return text
	}
	return jsonText(text) // every JSON text is a double-quoted YAML one
}

// yamlFloat writes a number with a point; without it YAML 1.1 reads a text.
func yamlFloat(x float64) string {
	text := strconv.FormatFloat(x, 'g', -1, 64)
	switch {
	case text == "+Inf":
		return ".inf"
	case text == "-Inf":
		return "-.inf"
	case text == "NaN":
		return ".nan"
	case strings.Contains(text, "."):
		return text
	}
	if i := strings.IndexByte(text, 'e'); i >= 0 {
		return text[:i] + ".0" + text[i:]
	}
	return text + ".0"
}

// printable reports whether a text can be written in single quotes.
func printable(text string) bool {
	for _, r := range text {
		if !strconv.IsPrint(r) {
			return false
		}
	}
	return true
}

// plainSafe reports whether a text keeps its meaning without quotes, also for readers of YAML
// 1.1, for whom yes and on are truth values.
func plainSafe(text string) bool {
	for i, r := range text {
		letter := r == '_' || r == '/' || r == '.' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || r != '-' && r != '+') {
			return false
		}
	}
	if _, truth := Truth(text); truth || text == "" {
		return false
	}
	var v any
	if yaml.Unmarshal([]byte(text), &v) != nil {
		return false
	}
	return v == text
}
