package format

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"sync"

	"github.com/gpurun/gpurun/recipes/edit"
	"github.com/gpurun/gpurun/strategy"
)

// The keys of the language are the tags of the fields that they fill: `toml:"name"`, and
// `missing:"…"`, what is wrong with a table without the key. README.md explains each.

// A special reads the keys whose values have several forms; false: the key has none.
type special interface {
	readKey(n *keyTable, key string) bool
}

// keysByType has the results of keysOf.
var keysByType sync.Map

// keysOf lists the keys of a struct; one with a place also has the keys of places.
func keysOf(t reflect.Type) (keys []string) {
	if known, ok := keysByType.Load(t); ok {
		return known.([]string)
	}
	for i := range t.NumField() {
		switch key, tagged := t.Field(i).Tag.Lookup("toml"); {
		case key == ",place":
			keys = append(keys, PlaceKeys()...)
		case tagged:
			keys = append(keys, key)
		}
	}
	keysByType.Store(t, keys)
	return keys
}

// KnobKeys lists the keys that a knob, or a place of it, may have, sorted, each once.
func KnobKeys() []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(keysOf(reflect.TypeFor[Knob]()), PlaceKeys()))))
}

// fill reads a table into a struct: first the keys, in the order of the fields, then the checks
// that concern several keys.
func (n *keyTable) fill(into any) {
	v := reflect.ValueOf(into).Elem()
	forms, _ := into.(special)
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		switch key, missing := tag.Get("toml"), tag.Get("missing"); {
		case key == "" || key == ",place" || slices.Contains(n.taken, key):
		case !n.Has(key) && missing != "":
			n.fault(key, "%s", missing)
		case n.Has(key) && (forms == nil || !forms.readKey(n, key)):
			n.read(key, v.Field(i))
		}
	}
	if c, ok := into.(interface{ check(n *keyTable) }); ok {
		c.check(n)
	}
}

// one reads the table at a key into a struct.
func (n *keyTable) one(key string, into reflect.Value) {
	if inner, there := n.Table(key); there {
		n := n.of(inner, keysOf(into.Type()))
		n.fill(into.Addr().Interface())
		n.done()
	}
}

// many adds the tables at a key to a list of structs.
func (n *keyTable) many(key string, into reflect.Value) {
	tables, ok := n.Tables(key)
	if !ok {
		n.fault(key, "want [[%s]] tables", key)
	}
	for _, values := range tables {
		element := reflect.New(into.Type().Elem())
		inner := n.of(values, keysOf(element.Elem().Type()))
		inner.fill(element.Interface())
		inner.done()
		into.Set(reflect.Append(into, element.Elem()))
	}
}

const maxNumber = math.MaxInt32

// A keyTable reads one table of the language.
type keyTable struct {
	*edit.ValueTable
	allowed []string
	// taken are keys of the table that do not belong to the place in it.
	taken []string
	// k is the knob whose values the table has; empty: none.
	k strategy.Knob
	// optional: a file that is not named has no values for the places in the table.
	optional bool
}

// newTable returns a table with these keys at a path of a file.
func newTable(values map[string]any, problems *[]edit.Problem, allowed []string, path ...string) *keyTable {
	return &keyTable{ValueTable: edit.NewTable(values, problems, path...), allowed: allowed}
}

// of returns a table inside this one, which may have these keys.
func (n *keyTable) of(inner *edit.ValueTable, allowed ...[]string) *keyTable {
	return &keyTable{ValueTable: inner, allowed: slices.Concat(allowed...), k: n.k, optional: n.optional}
}

// open returns the table at a key, whose keys are names that the reader chose; empty if there is
// none.
func (n *keyTable) open(key string) *keyTable {
	inner, _ := n.Table(key)
	return n.of(inner, inner.Keys())
}

// read reads the value of a key into a field.
func (n *keyTable) read(key string, field reflect.Value) {
	switch f := field.Addr().Interface().(type) {
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
	case *spellings:
		*f = n.spellings(key)
	case *[]Via:
		*f = n.vias(key)
	default:
		switch {
		case n.Read(key, f, 0, maxNumber):
		case field.Kind() == reflect.Pointer:
			field.Set(reflect.New(field.Type().Elem()))
			n.one(key, field.Elem())
		case field.Kind() == reflect.Struct:
			n.one(key, field)
		case field.Kind() == reflect.Slice:
			n.many(key, field)
		default:
			panic(fmt.Sprintf("format: no key is read into a %T", f))
		}
	}
}

// fault reports an error at a key, or of the table if the key is empty.
func (n *keyTable) fault(key, message string, args ...any) {
	p := edit.Problem{Key: n.Path(), Message: fmt.Sprintf(message, args...)}
	if key != "" {
		p.Key = n.Path(key)
	}
	n.Report(p)
}

// misspelt reports a word that is none of some words, and suggests the nearest.
func (n *keyTable) misspelt(key, word string, words []string, message string, args ...any) {
	n.Report(edit.Problem{Key: n.Path(key), Message: fmt.Sprintf(message, args...), Suggest: edit.Nearest(word, words)})
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
		n.misspelt(key, string(k), knobNames(), "there is no knob %q", k)
	}
	return k
}

// knobValue reports whether the knob has the word at a key, and adds a problem if it does not.
func (n *keyTable) knobValue(k strategy.Knob, key, word string) bool {
	vocabulary := strategy.Vocabulary(k)
	if vocabulary == nil || slices.Contains(vocabulary, strategy.Value(word)) {
		return true
	}
	n.misspelt(key, word, Texts(vocabulary), "%s is not one of %s", word, Join(vocabulary))
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
func (n *keyTable) expression(key string) string {
	if e := n.Expression(key); e != nil {
		return e.String()
	}
	return ""
}

// done reports the keys that the table does not have.
func (n *keyTable) done() {
	for _, key := range n.Keys() {
		if !slices.Contains(n.allowed, key) {
			n.Unknown(key, n.allowed)
		}
	}
}

// Parse reads a recipe file, which may name these rules; file is its name, for messages. The
// error has all its faults, each at its position.
func Parse(file string, text []byte, rules Rules) (Recipe, error) {
	failed := edit.FileError{File: file, Kind: "recipe that can be used"}
	values, fault := edit.DecodeTOML(text)
	if fault != nil {
		failed.Faults = []edit.FileFault{*fault}
		return Recipe{}, &failed
	}
	var problems []edit.Problem
	r, n := newRecipe(), newTable(values, &problems, keysOf(reflect.TypeFor[Recipe]()))
	n.fill(&r)
	n.done()
	for _, name := range r.Rules {
		rule, known := rules[name]
		if !known {
			n.misspelt("rules", name, slices.Sorted(maps.Keys(rules)), "there is no rule %q", name)
		}
		if known && rule.Shape != nil && len(problems) == 0 {
			rule.Shape(&r)
		}
	}
	if len(problems) > 0 {
		failed.Faults = edit.Faults(text, sorted(problems))
		return r, &failed
	}
	return r, nil
}

// FromKnobs reads the [knobs] table of a train.toml, in the form that a TOML decoder returns. The
// recipe has no name.
func FromKnobs(values map[string]any) (Recipe, []edit.Problem) {
	var problems []edit.Problem
	r := newRecipe()
	newTable(values, &problems, knobNames(), "knobs").knobs(r.Knobs)
	for k, knob := range r.Knobs {
		knob.Own = true
		r.Knobs[k] = knob
	}
	return r, sorted(problems)
}

// sorted are problems in the order of their keys.
func sorted(problems []edit.Problem) []edit.Problem {
	slices.SortStableFunc(problems, func(a, b edit.Problem) int { return slices.Compare(a.Key, b.Key) })
	return problems
}
