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

// jsonSyntax reads JSON with comments and trailing commas. Offsets in hujson's
// tree count from behind the byte order mark.
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

// syntaxError takes the position out of a parser's message.
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

func (jsonSyntax) decode(text []byte) (any, error) {
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

// jsonText writes a scalar. HTML characters stay as they are.
func jsonText(value any) string {
	switch v := value.(type) {
	case string:
		return string(hujson.String(v))
	case float64:
		text, _ := json.Marshal(v) // a float that is no NaN and no infinity
		if !bytes.ContainsAny(text, ".e") {
			text = append(text, ".0"...)
		}
		return string(text)
	}
	text, _ := json.Marshal(value) // nil, a bool or an integer
	return string(text)
}
