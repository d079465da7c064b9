package patch

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tailscale/hujson"
)

// jsonSyntax reads JSON with comments and trailing commas. Offsets in hujson's tree start after
// the byte order mark.
type jsonSyntax struct{}

func parseJSON(text []byte) (hujson.Value, error) {
	body := withoutBOM(text)
	if !utf8.Valid(body) {
		return hujson.Value{}, &Error{Format: JSON, Reason: Syntax, Message: "is not UTF-8"}
	}
	root, err := hujson.Parse(body)
	if err != nil {
		return root, syntaxError(JSON, err)
	}
	return root, nil
}

// syntaxError separates the position from a parser's message.
func syntaxError(f Format, err error) *Error {
	message := err.Error()
	e := &Error{Format: f, Reason: Syntax}
	_, message, _ = strings.Cut(": "+message, ": ")
	message = strings.TrimPrefix(strings.TrimPrefix(message, "hujson: "), "yaml: ")
	if head, tail, found := strings.Cut(message, ": "); found && strings.HasPrefix(head, "line ") {
		line, column, _ := strings.Cut(strings.TrimPrefix(head, "line "), ", column ")
		if n, err := strconv.Atoi(line); err == nil {
			e.Line, e.Column, message = n, 1, tail
		}
		if n, err := strconv.Atoi(column); err == nil {
			e.Column = n
		}
	}
	e.Message = "is not " + string(f) + ": " + message
	return e
}

func (jsonSyntax) decode(text []byte, _ []string) (any, error) {
	root, err := parseJSON(text)
	if err != nil {
		return nil, err
	}
	return jsonValue(withoutBOM(text), root, nil)
}

// jsonValue turns a tree into plain values and refuses duplicate keys.
func jsonValue(body []byte, v hujson.Value, at []string) (any, error) {
	switch node := v.Value.(type) {
	case *hujson.Object:
		object := make(map[string]any, len(node.Members))
		for _, member := range node.Members {
			key := member.Name.Value.(hujson.Literal).String()
			path := append(at[:len(at):len(at)], key)
			if _, twice := object[key]; twice {
				line, column := position(body, member.Name.StartOffset)
				return nil, &Error{JSON, Duplicate, Join(path), line, column, "the key occurs twice"}
			}
			value, err := jsonValue(body, member.Value, path)
			if err != nil {
				return nil, err
			}
			object[key] = value
		}
		return object, nil
	case *hujson.Array:
		list := make([]any, 0, len(node.Elements))
		for i, element := range node.Elements {
			value, err := jsonValue(body, element, append(at[:len(at):len(at)], strconv.Itoa(i)))
			if err != nil {
				return nil, err
			}
			list = append(list, value)
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
	x, _ := strconv.ParseFloat(string(literal), 64)
	return x
}

func (jsonSyntax) splice(text []byte, keys []string, value any) ([]byte, error) {
	root, err := parseJSON(text)
	if err != nil {
		return nil, err
	}
	if x, isFloat := value.(float64); isFloat && (math.IsNaN(x) || math.IsInf(x, 0)) {
		return nil, &Error{Format: JSON, Reason: Value, Path: Join(keys), Message: "JSON has no such number"}
	}
	shift := len(text) - len(withoutBOM(text))
	at := &root
	for i, key := range keys {
		next := jsonChild(at, key)
		if next == nil {
			s := jsonStyle{text: text, shift: shift, root: root}
			return s.insert(at, keys[i:], value), nil
		}
		at = next
	}
	return spliced(text, shift+at.StartOffset, shift+at.EndOffset, jsonText(value)), nil
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

// jsonText writes a scalar. HTML characters are not escaped.
func jsonText(value any) string {
	switch v := value.(type) {
	case string:
		return string(hujson.String(v))
	case float64:
		text, _ := json.Marshal(v) // a float that is neither NaN nor infinite
		if !bytes.ContainsAny(text, ".e") {
			text = append(text, ".0"...)
		}
		return string(text)
	}
	text, _ := json.Marshal(value) // nil, a bool or an integer
	return string(text)
}

// jsonStyle inserts members in the style of their neighbours.
type jsonStyle struct {
	text  []byte
	shift int // length of the byte order mark
	root  hujson.Value
}

// insert adds keys[0], and the objects down to the value, to the object at v; a
// null at v becomes an object.
func (s jsonStyle) insert(v *hujson.Value, keys []string, value any) []byte {
	object, isObject := v.Value.(*hujson.Object)
	switch {
	case !isObject:
		own := s.indentOf(v.StartOffset)
		return spliced(s.text, s.shift+v.StartOffset, s.shift+v.EndOffset, s.nested(keys, value, own, s.multiline()))
	case len(object.Members) == 0:
		return s.intoEmpty(v, keys, value)
	}
	return s.afterLast(v, object, keys, value)
}

// intoEmpty fills an object that has no members.
func (s jsonStyle) intoEmpty(v *hujson.Value, keys []string, value any) []byte {
	open, shut := s.shift+v.StartOffset, s.shift+v.EndOffset
	own := s.indentOf(v.StartOffset)
	inside := s.text[open+1 : shut-1]
	if len(bytes.TrimSpace(inside)) == 0 {
		multiline := s.multiline() || bytes.ContainsRune(inside, '\n')
		return spliced(s.text, open, shut, s.nested(keys, value, own, multiline))
	}
	// Only comments: the member gets a line after them.
	end := open + 1 + len(bytes.TrimRight(inside, " \t\r\n"))
	nl, indent := lineEnd(s.text), own+s.unit()
	return spliced(s.text, end, shut-1, nl+indent+s.member(keys, value, indent, true)+nl+own)
}

// afterLast adds a member after the last one, and after a comment on the same line.
func (s jsonStyle) afterLast(v *hujson.Value, object *hujson.Object, keys []string, value any) []byte {
	last := object.Members[len(object.Members)-1]
	end := s.shift + last.Value.EndOffset
	before := string(last.Name.BeforeExtra)
	newline := strings.LastIndexByte(before, '\n')
	if newline < 0 {
		return s.onSameLine(object, keys, value)
	}
	indent := before[newline+1:]
	if i := strings.IndexFunc(indent, func(r rune) bool { return r != ' ' && r != '\t' }); i >= 0 {
		indent = indent[:i] // a comment is between the indentation and the name
	}
	comma, point := s.lineBehind(end, s.shift+v.EndOffset-1)
	insertion := lineEnd(s.text) + indent + s.member(keys, value, indent, true)
	if comma {
		return spliced(s.text, point, point, insertion+",")
	}
	next := spliced(s.text, point, point, insertion)
	return spliced(next, end, end, ",")
}

// onSameLine adds a member to an object whose members share a line.
func (s jsonStyle) onSameLine(object *hujson.Object, keys []string, value any) []byte {
	last := object.Members[len(object.Members)-1]
	end := s.shift + last.Value.EndOffset
	gap := string(last.Name.BeforeExtra)
	if len(object.Members) == 1 {
		gap = strings.TrimPrefix(s.colon(), ":")
	}
	if strings.Trim(gap, " \t") != "" {
		gap = " "
	}
	return spliced(s.text, end, end, ","+gap+s.member(keys, value, "", false))
}

// lineBehind reads the text after a value that ends at from, inside an object that ends at to. It
// reports whether there is a comma, and where the line of both ends.
func (s jsonStyle) lineBehind(from, to int) (comma bool, point int) {
	point = from
	for i := from; i < to; {
		rest := s.text[i:to]
		switch {
		case rest[0] == '\n':
			return comma, point
		case bytes.HasPrefix(rest, []byte("//")):
			n := bytes.IndexByte(rest, '\n')
			if n < 0 {
				n = len(rest)
			}
			i += n
			point = i - (n - len(bytes.TrimRight(rest[:n], "\r")))
		case bytes.HasPrefix(rest, []byte("/*")):
			i += bytes.Index(rest, []byte("*/")) + 2
			point = i
		case rest[0] == ',':
			comma = true
			i++
			point = i
		default:
			i++
		}
	}
	return comma, point
}

// member writes "key": value, with the objects in between.
func (s jsonStyle) member(keys []string, value any, indent string, multiline bool) string {
	text := string(hujson.String(keys[0])) + s.colon()
	if len(keys) == 1 {
		return text + jsonText(value)
	}
	return text + s.nested(keys[1:], value, indent, multiline)
}

// nested writes an object that holds keys[0], whose own line is indented by own.
func (s jsonStyle) nested(keys []string, value any, own string, multiline bool) string {
	if !multiline {
		return "{" + s.member(keys, value, "", false) + "}"
	}
	nl, indent := lineEnd(s.text), own+s.unit()
	return "{" + nl + indent + s.member(keys, value, indent, true) + nl + own + "}"
}

// multiline reports whether the document puts members on separate lines.
func (s jsonStyle) multiline() bool { return s.unitOf() != "" || s.empty() }

// empty reports whether the document has no member to take a style from.
func (s jsonStyle) empty() bool {
	object, isObject := s.root.Value.(*hujson.Object)
	return !isObject || len(object.Members) == 0
}

// unit is one step of indentation.
func (s jsonStyle) unit() string {
	if unit := s.unitOf(); unit != "" {
		return unit
	}
	return "  "
}

// unitOf is the indentation of the first member of the outermost object relative to the object's
// own; empty if members share a line.
func (s jsonStyle) unitOf() string {
	object, isObject := s.root.Value.(*hujson.Object)
	if !isObject || len(object.Members) == 0 {
		return ""
	}
	name := object.Members[0].Name
	if !bytes.ContainsRune(name.BeforeExtra, '\n') {
		return ""
	}
	own := s.indentOf(s.root.StartOffset)
	return strings.TrimPrefix(s.indentOf(name.StartOffset), own)
}

// colon is the text between a name and its value, as in the document's first member.
func (s jsonStyle) colon() string {
	if object, isObject := s.root.Value.(*hujson.Object); isObject && len(object.Members) > 0 {
		first := object.Members[0]
		between := string(first.Name.AfterExtra) + ":" + string(first.Value.BeforeExtra)
		if strings.Trim(between, " \t:") == "" {
			return between
		}
	}
	return ": "
}

// indentOf is the white space at the start of the line of an offset.
func (s jsonStyle) indentOf(offset int) string {
	at := s.shift + offset
	start := 1 + bytes.LastIndexByte(s.text[:at], '\n')
	line := bytes.TrimPrefix(s.text[start:at], bom)
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}
