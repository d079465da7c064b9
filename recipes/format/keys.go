package format

import (
	"slices"
)

// A spec is one key of a table of the language: its help, and the field that it fills.
type spec[T any] struct {
	name string
	help string // one line of README.md
	// field is a pointer, whose type decides what is read (table.read), or a reader.
	field func(*T) any
	// missing is the fault of a table without the key; empty: the key can be left out.
	missing string
}

// A reader reads the value of one key.
type reader interface{ read(n *table, key string) }

// leaf is a reader that needs no other table of the language.
type leaf func(n *table, key string)

func (f leaf) read(n *table, key string) { f(n, key) }

// fill reads a table into t: the keys, and then what no single key decides.
func fill[T any](n *table, specs []spec[T], t *T) {
	for _, s := range specs {
		switch {
		case slices.Contains(n.taken, s.name):
		case n.Has(s.name):
			n.read(s.name, s.field(t))
		case s.missing != "":
			n.fault(s.name, "%s", s.missing)
		}
	}
	if c, ok := any(t).(interface{ check(n *table) }); ok {
		c.check(n)
	}
}

// one reads the table at a key.
func one[T any](n *table, key string, specs []spec[T], t *T) {
	if inner, there := n.Table.Table(key); there {
		n := n.of(inner, names(specs))
		fill(n, specs, t)
		n.done()
	}
}

// many reads the tables at a key, each of which may have further keys.
func many[T any](n *table, key string, specs []spec[T], further ...[]string) []T {
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

// KnobKeys are the keys that a knob, or a place of it, may have, sorted, each once.
func KnobKeys() []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(names(knobSpecs), placeKeys()))))
}
