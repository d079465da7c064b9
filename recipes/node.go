package recipes

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A node is one table on its way into a recipe. It collects the faults of all
// that was read from it.
type node struct {
	table  map[string]any
	key    []string
	taken  []string
	faults *[]Problem
}

func (n *node) report(p Problem) {
	if n.faults == nil {
		n.faults = &[]Problem{}
	}
	*n.faults = append(*n.faults, p)
}

// path is the key of something inside the table; "" is the table itself.
func (n *node) path(key string) []string {
	if key == "" {
		return slices.Clone(n.key)
	}
	return append(slices.Clone(n.key), key)
}

func (n *node) fault(key, message string) { n.report(Problem{Key: n.path(key), Message: message}) }

// inner is a node for a table inside this one; its faults are this one's.
func (n *node) inner(table map[string]any, key string) *node {
	if n.faults == nil {
		n.faults = &[]Problem{}
	}
	return &node{table: table, key: n.path(key), faults: n.faults}
}

// child is the table at a key, empty where there is none.
func (n *node) child(key string) *node {
	table, _ := n.tableOf(key)
	return n.inner(table, key)
}

// take returns the value at a key and notes that somebody wants the key.
func (n *node) take(key string) (any, bool) {
	n.taken = append(n.taken, key)
	value, there := n.table[key]
	return value, there
}

func (n *node) tableOf(key string) (map[string]any, bool) {
	value, there := n.take(key)
	if !there {
		return nil, false
	}
	table, ok := value.(map[string]any)
	if !ok {
		n.fault(key, "want a table")
	}
	return table, ok
}

func (n *node) text(key string) string {
	value, there := n.take(key)
	text, ok := value.(string)
	if there && (!ok || text == "") {
		n.fault(key, "want a text")
	}
	return text
}

func (n *node) truth(key string) bool {
	value, there := n.take(key)
	truth, ok := value.(bool)
	if there && !ok {
		n.fault(key, "want true or false")
	}
	return truth
}

func (n *node) number(key string) int {
	value, there := n.take(key)
	number, ok := value.(int64)
	if there && (!ok || number < 0) {
		n.fault(key, "want a whole number")
	}
	return int(number)
}

func (n *node) texts(key string) []string {
	value, there := n.take(key)
	if !there {
		return nil
	}
	list, ok := value.([]any)
	texts := make([]string, 0, len(list))
	for _, item := range list {
		text, isText := item.(string)
		ok = ok && isText
		texts = append(texts, text)
	}
	if !ok {
		n.fault(key, "want a list of texts")
	}
	return texts
}

// tablesOf reads a table, or a list of tables in either form that the decoder
// gives it.
func tablesOf(value any) ([]map[string]any, bool) {
	switch v := value.(type) {
	case map[string]any:
		return []map[string]any{v}, true
	case []map[string]any:
		return v, true
	case []any:
		var tables []map[string]any
		for _, item := range v {
			table, ok := item.(map[string]any)
			if !ok {
				return nil, false
			}
			tables = append(tables, table)
		}
		return tables, true
	}
	return nil, false
}

// done reports the keys that nobody wanted; known are further names that one of
// them may have been meant for.
func (n *node) done(known ...string) {
	for _, key := range slices.Sorted(maps.Keys(n.table)) {
		if !slices.Contains(n.taken, key) {
			n.report(Problem{Key: n.path(key), Message: "unknown key", Suggest: nearest(key, append(known, n.taken...))})
		}
	}
}

// sorted returns all faults in the order of their keys.
func (n *node) sorted() []Problem {
	if n.faults == nil || len(*n.faults) == 0 {
		return nil
	}
	faults := *n.faults
	slices.SortStableFunc(faults, func(a, b Problem) int { return slices.Compare(a.Key, b.Key) })
	return faults
}

// String is the problem in one line.
func (p Problem) String() string {
	text := p.Message
	if len(p.Key) > 0 {
		text = strings.Join(p.Key, ".") + ": " + text
	}
	if p.Suggest != "" {
		text += fmt.Sprintf(" (did you mean %q?)", p.Suggest)
	}
	return text
}
