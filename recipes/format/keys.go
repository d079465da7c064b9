package format

import (
	"fmt"
	"math"
	"slices"

	"github.com/gpurun/gpurun/recipes/document"
	"github.com/gpurun/gpurun/strategy"
)

// A spec is one key of a table of the language: its help, and the field that it fills.
type spec[T any] struct {
	name string
	help string // one line of README.md
	// field is a pointer, whose type decides how the value is read (table.read), or a keyReader.
	field func(*T) any
	// missing is the message for a table without the key; empty: the key is optional.
	missing string
}

// A keyReader reads the value of one key.
type keyReader interface{ read(n *keyTable, key string) }

// leaf is a keyReader that needs no other table of the language.
type leaf func(n *keyTable, key string)

func (f leaf) read(n *keyTable, key string) { f(n, key) }

// fill reads a table into t: first the keys, then the checks that concern several keys.
func fill[T any](n *keyTable, specs []spec[T], t *T) {
	for _, s := range specs {
		switch {
		case slices.Contains(n.taken, s.name):
		case n.Has(s.name):
			n.read(s.name, s.field(t))
		case s.missing != "":
			n.fault(s.name, "%s", s.missing)
		}
	}
	if c, ok := any(t).(interface{ check(n *keyTable) }); ok {
		c.check(n)
	}
}

// one reads the table at a key.
func one[T any](n *keyTable, key string, specs []spec[T], t *T) {
	if inner, there := n.Table(key); there {
		n := n.of(inner, names(specs))
		fill(n, specs, t)
		n.done()
	}
}

// many reads the tables at a key, each of which may have further keys.
func many[T any](n *keyTable, key string, specs []spec[T], further ...[]string) []T {
	inner, ok := n.Tables(key)
	if !ok {
		n.fault(key, "want [[%s]] tables", key)
	}
	all := make([]T, len(inner))
	for i, values := range inner {
		n := n.of(values, append(further, names(specs))...)
		fill(n, specs, &all[i])
		n.done()
	}
	return all
}

func names[T any](specs []spec[T]) []string {
	all := make([]string, len(specs))
	for i, s := range specs {
		all[i] = s.name
	}
	return all
}

// A TableHelp is the help of one table of the language.
type TableHelp struct {
	Title string
	Keys  [][2]string // name and help
}

func helpOf[T any](title string, specs []spec[T]) TableHelp {
	h := TableHelp{Title: title}
	for _, s := range specs {
		h.Keys = append(h.Keys, [2]string{s.name, s.help})
	}
	return h
}

// Help is the help of all tables, for README.md.
func Help() []TableHelp {
	var place TableHelp
	for _, k := range kinds {
		place.Keys = append(place.Keys, k.help().Keys...)
	}
	place = TableHelp{"A place", slices.Concat(place.Keys, helpOf("", inFileSpecs).Keys, helpOf("", placeSpecs).Keys)}
	return []TableHelp{
		helpOf("The file", recipeSpecs), helpOf("`[detect]`", detectSpecs), helpOf("`[resume]`", resumeSpecs), helpOf("`[progress]`", progressSpecs),
		helpOf("`[deepspeed]`", creationSpecs), helpOf("`[[parallel]]`, besides the keys of a place", parallelSpecs),
		helpOf("`[[checkpoint]]`", survivalSpecs), helpOf("`[[proof]]`", proofSpecs), helpOf("`[[loss]]`", lossSpecs),
		helpOf("A knob, besides the keys of its place", knobSpecs), place, helpOf("`via`", viaSpecs),
		helpOf("`also` and `own_oom`, besides the keys of a place", settingSpecs), helpOf("`unless`, besides the keys of a place", conditionSpecs),
	}
}

// KnobKeys lists the keys that a knob, or a place of it, may have, sorted, each once.
func KnobKeys() []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(names(knobSpecs), placeKeys()))))
}

const maxNumber = math.MaxInt32

// A keyTable reads one table of the language.
type keyTable struct {
	*document.ValueTable
	allowed []string
	// taken are keys of the table that do not belong to the place in it.
	taken []string
	// k is the knob whose values the table has; empty: none.
	k strategy.Knob
	// optional: a file that is not named has no values for the places in the table.
	optional bool
}

// newTable returns a table with these keys at a path of a file.
func newTable(values map[string]any, problems *[]document.Problem, allowed []string, path ...string) *keyTable {
	return &keyTable{ValueTable: document.NewTable(values, problems, path...), allowed: allowed}
}

// of returns a table inside this one, which may have these keys.
func (n *keyTable) of(inner *document.ValueTable, allowed ...[]string) *keyTable {
	return &keyTable{ValueTable: inner, allowed: slices.Concat(allowed...), k: n.k, optional: n.optional}
}

// open returns the table at a key, whose keys are names that the reader chose; empty if there is
// none.
func (n *keyTable) open(key string) *keyTable {
	inner, _ := n.Table(key)
	return n.of(inner, inner.Keys())
}

// read reads the value of a key into a field.
func (n *keyTable) read(key string, field any) {
	if n.Read(key, field, 0, maxNumber) {
		return
	}
	switch f := field.(type) {
	case keyReader:
		f.read(n, key)
	case *any:
		*f = n.value(key)
	case *strategy.Knob:
		*f = n.knob(key)
	case *strategy.Value:
		value, _ := n.Get(key)
		*f = strategy.Value(fmt.Sprint(value))
	case *[]strategy.Value:
		*f = n.values(key)
	case *map[strategy.Value][]any:
		*f = n.words(key)
	case *Versions:
		*f = n.versions(key)
	case *[]Place:
		*f = n.optionalPlaces(key)
	case *map[strategy.Knob]Knob:
		inner, _ := n.Table(key)
		n.of(inner, knobNames()).knobs(*f)
	case *[][]Place:
		for _, size := range many(n, key, parallelSpecs, placeKeys()) {
			*f = append(*f, size.places)
		}
	case **Creation:
		*f = &Creation{}
		one(n, key, creationSpecs, *f)
	case **Via:
		*f = &Via{}
		one(n, key, viaSpecs, *f)
	case *spellings:
		*f = n.spellings(key)
	case *[]Via:
		*f = n.vias(key)
	case *[]Setting:
		*f = append(*f, many(n, key, settingSpecs, placeKeys())...)
	case *[]Condition:
		*f = append(*f, many(n, key, conditionSpecs, placeKeys())...)
	case *[]CheckpointLimit:
		*f = many(n, key, survivalSpecs)
	case *[]Proof:
		*f = many(n, key, proofSpecs)
	case *[]LossRule:
		*f = many(n, key, lossSpecs)
	case *Detection:
		one(n, key, detectSpecs, f)
	case *Resume:
		one(n, key, resumeSpecs, f)
	case *ProgressLines:
		one(n, key, progressSpecs, f)
	default:
		panic(fmt.Sprintf("format: no key is read into a %T", field))
	}
}

// fault reports an error at a key, or of the table if the key is empty.
func (n *keyTable) fault(key, message string, args ...any) {
	p := document.Problem{Key: n.Path(), Message: fmt.Sprintf(message, args...)}
	if key != "" {
		p.Key = n.Path(key)
	}
	n.Report(p)
}

// value returns a word, a number or a truth value; for any other value, nil and a problem.
func (n *keyTable) value(key string) any {
	value, _ := n.Get(key)
	switch value.(type) {
	case string, bool, int64, float64:
		return value
	}
	n.fault(key, "want a word, a number or a truth value")
	return nil
}

// knob reads the name of a knob.
func (n *keyTable) knob(key string) strategy.Knob {
	k := strategy.Knob(n.Filled(key))
	if !slices.Contains(strategy.Knobs, k) {
		n.Report(document.Problem{Key: n.Path(key), Message: fmt.Sprintf("there is no knob %q", k), Suggest: document.Nearest(string(k), knobNames())})
	}
	return k
}

// knobValue reports whether the knob has the word at a key, and adds a problem if it does not.
func (n *keyTable) knobValue(k strategy.Knob, key, word string) bool {
	vocabulary := strategy.Vocabulary(k)
	if vocabulary == nil || slices.Contains(vocabulary, strategy.Value(word)) {
		return true
	}
	n.Report(document.Problem{
		Key:     n.Path(key),
		Message: fmt.Sprintf("%s is not one of %s", word, Join(vocabulary)),
		Suggest: document.Nearest(word, texts(vocabulary)),
	})
	return false
}

// spellings reads one name, or a list of names of the same setting.
func (n *keyTable) spellings(key string) []string {
	if value, _ := n.Get(key); !isA[[]any](value) {
		return []string{n.Filled(key)}
	}
	names := n.Words(key)
	if len(names) == 0 {
		n.fault(key, "want the argument's name")
		return []string{""}
	}
	return names
}

// values reads a list of the knob's values.
func (n *keyTable) values(key string) []strategy.Value {
	var values []strategy.Value
	for _, word := range n.Words(key) {
		n.knobValue(n.k, key, word)
		values = append(values, strategy.Value(word))
	}
	return values
}

// words reads a table from the knob's values to the framework's words: one, or a list of which
// the first is written.
func (n *keyTable) words(key string) map[strategy.Value][]any {
	inner := n.open(key)
	words, owner := map[strategy.Value][]any{}, map[string]string{}
	for _, value := range inner.Keys() {
		inner.knobValue(n.k, value, value)
		spelt, _ := inner.Get(value)
		list, isList := spelt.([]any)
		if !isList {
			list = []any{spelt}
		}
		if len(list) == 0 {
			inner.fault(value, "want the framework's word")
		}
		for _, word := range list {
			switch word.(type) {
			case string, bool, int64, float64:
			default:
				inner.fault(value, "want a word, a number or a truth value, not %v", word)
				continue
			}
			text := fmt.Sprint(word)
			if other, taken := owner[text]; taken {
				inner.fault(value, "%q is already the word for %s", text, other)
			}
			owner[text] = value
			words[strategy.Value(value)] = append(words[strategy.Value(value)], word)
		}
	}
	return words
}

func (n *keyTable) versions(key string) Versions {
	versions := Versions{}
	inner := n.open(key)
	for _, name := range inner.Keys() {
		versions[name] = inner.Filled(name)
	}
	if err := versions.check(); err != nil {
		n.fault(key, "%s", err)
	}
	return versions
}

// expression reads a regular expression, as text.
func expression(text *string) leaf {
	return func(n *keyTable, key string) {
		if e := n.Expression(key); e != nil {
			*text = e.String()
		}
	}
}

// done reports the keys that the table does not have.
func (n *keyTable) done() {
	for _, key := range n.Keys() {
		if !slices.Contains(n.allowed, key) {
			n.Unknown(key, n.allowed)
		}
	}
}
