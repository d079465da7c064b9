package edit

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tailscale/hujson"
)

func parseJSON(text []byte) (hujson.Value, error) {
	if !utf8.Valid(text) {
		return hujson.Value{}, &Error{Message: "is not UTF-8"}
	}
	root, err := hujson.Parse(text)
	if err == nil {
		return root, nil
	}
	line, column, message := 0, 0, strings.TrimPrefix(err.Error(), "hujson: ")
	if at, what, found := strings.Cut(strings.TrimPrefix(message, "line "), ": "); found {
		l, c, _ := strings.Cut(at, ", column ")
		line, _ = strconv.Atoi(l)
		column, _ = strconv.Atoi(c)
		message = what
	}
	return root, notWell(JSON, line, column, message)
}

func decodeJSON(text []byte) (any, error) {
	root, err := parseJSON(text)
	if err != nil {
		return nil, err
	}
	return jsonValue(text, root, nil)
}

// jsonValue turns a tree into plain values and refuses duplicate keys.
func jsonValue(text []byte, v hujson.Value, at []string) (value any, err error) {
	switch node := v.Value.(type) {
	case *hujson.Object:
		object := make(map[string]any, len(node.Members))
		for _, member := range node.Members {
			key := member.Name.Value.(hujson.Literal).String()
			path := append(at[:len(at):len(at)], key)
			if _, twice := object[key]; twice {
				line, column := position(text, member.Name.StartOffset)
				return nil, &Error{Join(path), line, column, "the key occurs twice"}
			}
			if object[key], err = jsonValue(text, member.Value, path); err != nil {
				return nil, err
			}
		}
		return object, nil
	case *hujson.Array:
		list := make([]any, len(node.Elements))
		for i, element := range node.Elements {
			if list[i], err = jsonValue(text, element, append(at[:len(at):len(at)], strconv.Itoa(i))); err != nil {
				return nil, err
			}
		}
		return list, nil
	}
	return jsonScalar(v.Value.(hujson.Literal)), nil
}

func jsonScalar(literal hujson.Literal) any {
	switch literal.Kind() {
	case 'n':
		return nil
	case 't', 'f':
		return literal.Bool()
	case '"':
		return literal.String()
	}
	if n, err := strconv.ParseInt(string(literal), 10, 64); err == nil {
		return n
	}
	return literal.Float()
}

// editJSON changes the tree of the text, which keeps its comments and white space.
func editJSON(text []byte, keys []string, value any) ([][]byte, error) {
	root, err := parseJSON(text)
	if err != nil {
		return nil, err
	}
	at, rest := &root, keys
	for len(rest) > 0 {
		child := jsonChild(at, rest[0])
		if child == nil {
			break
		}
		at, rest = child, rest[1:]
	}
	if len(rest) == 0 {
		at.Value = hujson.Literal(JSON.word(value, true))
	} else {
		addMember(text, &root, at, rest, value)
	}
	return [][]byte{root.Pack()}, nil
}

// jsonChild is the member or element of that name, or nil.
func jsonChild(v *hujson.Value, key string) *hujson.Value {
	switch node := v.Value.(type) {
	case *hujson.Object:
		for i := range node.Members {
			if node.Members[i].Name.Value.(hujson.Literal).String() == key {
				return &node.Members[i].Value
			}
		}
	case *hujson.Array:
		if n, err := index(key, len(node.Elements)); err == nil {
			return &node.Elements[n]
		}
	}
	return nil
}

// addMember adds keys[0], with the objects down to the value, at the end of the object at v, in
// the layout of its members or, without any, of the outermost object. A null becomes an object.
func addMember(text []byte, root, v *hujson.Value, keys []string, value any) {
	unit, gap := lineEnd(text)+"  ", ""
	if outer, is := root.Value.(*hujson.Object); is && len(outer.Members) > 0 {
		unit = lastLine(outer.Members[0].Name.BeforeExtra)
	}
	object, is := v.Value.(*hujson.Object)
	if !is {
		object = &hujson.Object{}
		v.Value = object
	}
	before, own, colon := hujson.Extra(nil), indentation(text, v.StartOffset), hujson.Extra(" ")
	if n := len(object.Members); n > 0 {
		if after := object.Members[n-1].Value.BeforeExtra; len(bytes.TrimSpace(after)) == 0 {
			colon = after
		}
		gap = lastLine(object.Members[n-1].Name.BeforeExtra)
		before, object.AfterExtra = commentBehind(object.AfterExtra)
	} else {
		before = bytes.TrimRight(object.AfterExtra, " \t\r\n")
		if strings.Contains(unit, "\n") {
			gap, object.AfterExtra = lineEnd(text)+own+strings.Trim(unit, "\r\n"), hujson.Extra(lineEnd(text)+own)
		}
	}
	if gap == "" && len(object.Members)+len(before) > 0 {
		gap = string(colon)
	}
	nested := hujson.Literal(jsonNested(keys[1:], JSON.word(value, true), string(colon), gap, strings.Trim(unit, "\r\n")))
	object.Members = append(object.Members, hujson.ObjectMember{
		Name:  hujson.Value{BeforeExtra: append(bytes.Clone(before), gap...), Value: hujson.String(keys[0])},
		Value: hujson.Value{BeforeExtra: colon, Value: nested},
	})
}

// lastLine is the line end and the indentation at the end of the white space before a member;
// empty if the member begins no line.
func lastLine(before hujson.Extra) string {
	n := bytes.LastIndexByte(before, '\n')
	if n < 0 {
		return ""
	}
	if n > 0 && before[n-1] == '\r' {
		n--
	}
	line := string(before[n:])
	if i := strings.Index(line, "/*"); i >= 0 { // a comment before the name
		line = line[:i]
	}
	return line
}

// commentBehind separates the comment behind the last member, on its line, from the rest.
func commentBehind(after hujson.Extra) (comment, rest hujson.Extra) {
	n := bytes.IndexByte(after, '\n')
	if n < 0 || len(bytes.TrimSpace(after[:n])) == 0 {
		return nil, after
	}
	if i := bytes.Index(after[:n], []byte("/*")); i >= 0 && !bytes.Contains(after[:i], []byte("//")) {
		n = i + bytes.Index(after[i:], []byte("*/")) + len("*/")
	}
	comment = bytes.TrimRight(after[:n], "\r")
	return comment, after[len(comment):]
}

// jsonNested writes the objects around a word, on lines if the gap before their key is a line.
func jsonNested(keys []string, word, colon, gap, unit string) string {
	if len(keys) == 0 {
		return word
	}
	inner, shut := "", ""
	if strings.Contains(gap, "\n") {
		inner, shut = gap+unit, gap
	}
	value := jsonNested(keys[1:], word, colon, inner, unit)
	return "{" + inner + string(hujson.String(keys[0])) + ":" + colon + value + shut + "}"
}
