package patch

import (
	"bytes"
	"errors"
	"io"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// yamlSyntax reads one YAML document. Values come from the parser; their positions in the text
// from the positions of its nodes (yamltext.go).
type yamlSyntax struct{}

// yamlLimit bounds the nodes of a document after its aliases are followed, so that a few aliases
// of aliases cannot expand to billions.
const yamlLimit = 1 << 20

// parseYAML returns the document's root, nil for an empty document.
func parseYAML(text []byte) (*yaml.Node, error) {
	body := withoutBOM(text)
	if !utf8.Valid(body) || bytes.HasPrefix(body, []byte{0}) {
		return nil, &Error{Format: YAML, Reason: Syntax, Message: "is not UTF-8"}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(body))
	var document, second yaml.Node
	err := decodeNode(decoder, &document)
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	if err != nil {
		return nil, syntaxError(YAML, err)
	}
	switch err := decodeNode(decoder, &second); {
	case err == nil:
		return nil, &Error{Format: YAML, Reason: Shape, Line: second.Line, Column: second.Column,
			Message: "a second document starts here, so that a path is ambiguous"}
	case !errors.Is(err, io.EOF):
		return nil, syntaxError(YAML, err)
	}
	if len(document.Content) == 0 {
		return nil, nil
	}
	return document.Content[0], nil
}

// decodeNode turns the parser's panics for some malformed input into errors.
func decodeNode(decoder *yaml.Decoder, into *yaml.Node) (err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("yaml: the text cannot be parsed")
		}
	}()
	return decoder.Decode(into)
}

func (yamlSyntax) decode(text []byte, path []string) (any, error) {
	root, err := parseYAML(text)
	if err != nil || root == nil {
		return nil, err
	}
	r := yamlReader{open: map[*yaml.Node]bool{}, path: path}
	return r.value(root, nil)
}

// A yamlReader turns nodes into plain values.
type yamlReader struct {
	open map[*yaml.Node]bool // anchors that are being followed
	seen int
	// path is the only one that is read; nil: all are.
	path []string
}

func (r *yamlReader) value(n *yaml.Node, at []string) (any, error) {
	if r.seen++; r.seen > yamlLimit {
		return nil, yamlError(n, Shared, at, "the aliases stand for too many values")
	}
	switch n.Kind {
	case yaml.AliasNode:
		if r.open[n.Alias] {
			return nil, yamlError(n, Shared, at, "the alias refers to itself")
		}
		r.open[n.Alias] = true
		defer delete(r.open, n.Alias)
		return r.value(n.Alias, at)
	case yaml.MappingNode:
		return r.mapping(n, at)
	case yaml.SequenceNode:
		list := make([]any, 0, len(n.Content))
		for i, item := range n.Content {
			value, err := r.value(item, append(at[:len(at):len(at)], strconv.Itoa(i)))
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		return list, nil
	}
	return yamlScalar(n), nil
}

// matters reports whether a path leads to the one that is read, or continues it.
func (r *yamlReader) matters(path []string) bool {
	n := min(len(path), len(r.path))
	return r.path == nil || slices.Equal(path[:n], r.path[:n])
}

// mapping reads keys and values; the mapping's own values take precedence over merged ones.
func (r *yamlReader) mapping(n *yaml.Node, at []string) (any, error) {
	object, merged := make(map[string]any, len(n.Content)/2), map[string]any{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode {
			return nil, yamlError(key, Shape, at, "the key is not a plain word")
		}
		path := append(at[:len(at):len(at)], key.Value)
		plain, err := r.value(value, path)
		if err != nil {
			return nil, err
		}
		if key.Tag == "!!merge" {
			merge(merged, plain)
			continue
		}
		if _, twice := object[key.Value]; twice && r.matters(path) {
			return nil, yamlError(key, Duplicate, path, "the key occurs twice")
		}
		object[key.Value] = plain
	}
	for key, value := range merged {
		if _, own := object[key]; !own {
			object[key] = value
		}
	}
	return object, nil
}

// merge adds the value of a merge key: a mapping, or a list of mappings, of which the first wins.
func merge(into map[string]any, plain any) {
	switch v := plain.(type) {
	case map[string]any:
		for key, value := range v {
			if _, there := into[key]; !there {
				into[key] = value
			}
		}
	case []any:
		for _, item := range v {
			merge(into, item)
		}
	}
}

// yamlScalar resolves a scalar. Times and other tagged values become their text.
func yamlScalar(n *yaml.Node) any {
	var v any
	if n.Decode(&v) != nil {
		return n.Value
	}
	switch v := v.(type) {
	case nil, string, bool:
		return v
	case int:
		return int64(v)
	case int64:
		return v
	case float64:
		if math.IsNaN(v) {
			return n.Value // a NaN does not equal itself
		}
		return v
	}
	return n.Value
}

func yamlError(n *yaml.Node, reason Reason, at []string, message string) error {
	return &Error{Format: YAML, Reason: reason, Path: Join(at), Line: n.Line, Column: n.Column, Message: message}
}

func (yamlSyntax) splice(text []byte, keys []string, value any) ([]byte, error) {
	root, err := parseYAML(text)
	if err != nil {
		return nil, err
	}
	y := newYAMLText(text, root)
	if root == nil {
		return y.appendLine(keys, value)
	}
	var key *yaml.Node
	at := root
	for i, name := range keys {
		if err := y.own(at, keys[:i]); err != nil {
			return nil, err
		}
		childKey, child := yamlChild(at, name)
		if child == nil {
			return y.insert(key, at, keys[i:], value)
		}
		key, at = childKey, child
	}
	if err := y.own(at, keys); err != nil {
		return nil, err
	}
	return y.replace(key, at, keys, value)
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

// Line is the line of a key in YAML or JSON text; 0 if it is not found, as one of a merged mapping or of TOML.
func Line(f Format, text []byte, keys []string) int {
	at, err := parseYAML(text)
	if f == TOML || err != nil {
		return 0
	}
	line := 0
	for _, name := range keys {
		if at == nil {
			return 0
		}
		key, child := yamlChild(at, name)
		if key == nil {
			return 0
		}
		line, at = key.Line, child
	}
	return line
}
