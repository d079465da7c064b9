package format

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/recipes/document"
	"github.com/gpurun/gpurun/strategy"
)

// Problem is one fault in a recipe file or in a [knobs] table.
type Problem = document.Problem

// A table reads one table of the language. Only the keys that the language has
// there can be asked for.
type table struct {
	*document.Table
	allowed []string
	// optional: a file that is not named holds nothing for the places in here.
	optional bool
}

// of is a table inside this one, with the keys of these tables of the language.
func (n *table) of(inner *document.Table, names ...string) *table {
	t := &table{Table: inner, optional: n.optional}
	for _, name := range names {
		t.allowed = append(t.allowed, keys[name]...)
	}
	if slices.Contains(names, inWords) {
		t.allowed = inner.Keys()
	}
	return t
}

// child is the table at a key, empty where there is none.
func (n *table) child(key, name string) *table {
	n.known(key)
	inner, _ := n.Table.Table(key)
	return n.of(inner, name)
}

// tableAt is a table of the reader's own names, and whether it is there.
func (n *table) tableAt(key string) *table { return n.child(key, inWords) }

// list are the tables at a key, none where it is not set.
func (n *table) list(key string, names ...string) []*table {
	n.known(key)
	if !n.Has(key) {
		return nil
	}
	inner, ok := n.Tables(key)
	if !ok {
		n.fault(key, "want [[%s]] tables", key)
	}
	tables := make([]*table, len(inner))
	for i, t := range inner {
		tables[i] = n.of(t, names...)
	}
	return tables
}

// known holds that the language has a key: Keys lists all that a file can say.
func (n *table) known(key string) {
	if !slices.Contains(n.allowed, key) {
		panic(fmt.Sprintf("%q is read, and is no key of the language", strings.Join(n.Path(key), ".")))
	}
}

func (n *table) report(p Problem) { n.Report(p) }

// fault reports what is wrong at a key, or with the table where it is empty.
func (n *table) fault(key, message string, args ...any) {
	p := Problem{Key: n.Path(), Message: fmt.Sprintf(message, args...)}
	if key != "" {
		p.Key = n.Path(key)
	}
	n.Report(p)
}

func (n *table) text(key string) string {
	n.known(key)
	return n.Filled(key)
}

func (n *table) truth(key string) bool {
	n.known(key)
	return n.Truth(key, false)
}

func (n *table) number(key string) int {
	n.known(key)
	return n.Whole(key, 0, 0, math.MaxInt32)
}

func (n *table) texts(key string) []string {
	n.known(key)
	return n.Words(key)
}

// value is a word, a number or a truth value; nil, and a problem, where it is
// none of them.
func (n *table) value(key string) any {
	n.known(key)
	value, _ := n.Get(key)
	switch value.(type) {
	case string, bool, int64, float64:
		return value
	case nil:
		n.fault(key, "what is to be written is missing")
	default:
		n.fault(key, "want a word, a number or a truth value")
	}
	return nil
}

// names reads one name, or a list of names of the same thing.
func (n *table) names(key string) []string {
	if value, _ := n.Get(key); !isList(value) {
		return []string{n.text(key)}
	}
	names := n.texts(key)
	if len(names) == 0 {
		n.fault(key, "want the argument's name")
		return []string{""}
	}
	return names
}

func isList(value any) bool {
	_, is := value.([]any)
	return is
}

// knob reads the name of a knob.
func (n *table) knob(key string) strategy.Knob {
	k := strategy.Knob(n.text(key))
	if !slices.Contains(strategy.Knobs, k) {
		n.report(Problem{Key: n.Path(key), Message: fmt.Sprintf("there is no knob %q", k), Suggest: document.Nearest(string(k), knobNames())})
	}
	return k
}

// knobValue reports a word at a key that the knob does not have, and returns
// whether it has it.
func (n *table) knobValue(k strategy.Knob, key, word string) bool {
	vocabulary := strategy.Vocabulary(k)
	if vocabulary == nil || slices.Contains(vocabulary, strategy.Value(word)) {
		return true
	}
	words := make([]string, len(vocabulary))
	for i, v := range vocabulary {
		words[i] = string(v)
	}
	n.report(Problem{
		Key:     n.Path(key),
		Message: fmt.Sprintf("%s is none of %s", word, strings.Join(words, ", ")),
		Suggest: document.Nearest(word, words),
	})
	return false
}

// done reports the keys that mean nothing in the table; near are further names
// that one of them may have been meant for.
func (n *table) done(near ...string) {
	for _, key := range n.Keys() {
		if !slices.Contains(n.allowed, key) {
			n.Unknown(key, slices.Concat(near, n.allowed))
		}
	}
}
