package patch

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

var bom = []byte("\xef\xbb\xbf")

func withoutBOM(text []byte) []byte { return bytes.TrimPrefix(text, bom) }

// lookUp follows keys through plain values.
func lookUp(f Format, root any, keys []string) (any, bool, error) {
	for i, key := range keys {
		switch node := root.(type) {
		case map[string]any:
			next, there := node[key]
			if !there {
				return nil, false, nil
			}
			root = next
		case []any:
			n, err := index(key, len(node))
			if err != nil {
				return nil, false, &Error{Format: f, Reason: Shape, Path: Join(keys[:i+1]), Message: err.Error()}
			}
			root = node[n]
		case nil:
			return nil, false, nil // an empty file, or a key with nothing behind it
		default:
			return nil, false, &Error{Format: f, Reason: Shape, Path: Join(keys[:i]),
				Message: fmt.Sprintf("holds %v, so that there is no %q in it", node, key)}
		}
	}
	return root, true, nil
}

// index reads a list index and holds it against the list's length.
func index(key string, length int) (int, error) {
	n, err := strconv.Atoi(key)
	if err != nil || n < 0 || strconv.Itoa(n) != key {
		return 0, fmt.Errorf("%q is no index of a list", key)
	}
	if n >= length {
		return 0, fmt.Errorf("index %d of a list of %d", n, length)
	}
	return n, nil
}

// replaced is root with the value at keys replaced or inserted.
func replaced(root any, keys []string, value any) any {
	if len(keys) == 0 {
		return value
	}
	switch node := root.(type) {
	case []any:
		n, err := index(keys[0], len(node))
		if err != nil {
			return root
		}
		node = slices.Clone(node)
		node[n] = replaced(node[n], keys[1:], value)
		return node
	case map[string]any:
		node = maps.Clone(node)
		node[keys[0]] = replaced(node[keys[0]], keys[1:], value)
		return node
	}
	return map[string]any{keys[0]: replaced(nil, keys[1:], value)}
}

// position tells line and column, both from 1, of an offset. Columns count bytes.
func position(text []byte, offset int) (line, column int) {
	offset = min(max(offset, 0), len(text))
	before := text[:offset]
	line = 1 + bytes.Count(before, []byte("\n"))
	return line, offset - bytes.LastIndexByte(before, '\n')
}

// spliced is text with text[from:to] replaced.
func spliced(text []byte, from, to int, with string) []byte {
	next := make([]byte, 0, len(text)+len(with))
	next = append(next, text[:from]...)
	next = append(next, with...)
	return append(next, text[to:]...)
}

// lineEnd is the line end that the text uses: the first one that occurs.
func lineEnd(text []byte) string {
	if i := bytes.IndexByte(text, '\n'); i > 0 && text[i-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}
