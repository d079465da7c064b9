package edit

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/tailscale/hujson"
)

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
