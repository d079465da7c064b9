package format

import (
	"slices"

	"github.com/gpurun/gpurun/strategy"
)

var placeSpecs = []spec[Place]{
	{"auto", "the place repeats another: a missing file or key, and the value `\"auto\"`, are left alone", func(p *Place) any { return &p.Auto }, ""},
	{"there", "of alternatives: the place is changed only where it holds a value, such as a newer name that is stronger", func(p *Place) any { return &p.There }, ""},
	{"values", "the framework's words for the knob's values, of a list the first is written", func(p *Place) any { return &p.Words }, ""},
	{"reads", "words that are understood, and never chosen", func(p *Place) any { return &p.Reads }, ""},
	{"versions", "versions of Python packages in which the place exists", func(p *Place) any { return &p.Versions }, ""},
}

// A kindOfPlace reads the places of one kind, which alone have its first key.
type kindOfPlace interface {
	help() TableHelp
	read(n *keyTable, p *Place) PlaceKind
}

// kind is a kind whose places have these keys.
type kind[T PlaceKind] []spec[T]

func (k kind[T]) help() TableHelp { return helpOf("", k) }

func (k kind[T]) read(n *keyTable, p *Place) PlaceKind {
	var t T
	fill(n, k, &t)
	if c, ok := any(&t).(interface{ complete(n *keyTable, p *Place) }); ok {
		c.complete(n, p)
	}
	return t
}

var kinds = []kindOfPlace{
	kind[argument](argumentSpecs), kind[variable](variableSpecs), kind[override](overrideSpecs), kind[beginning](beginningSpecs),
	kind[assigned](assignedSpecs), kind[fileKey](fileKeySpecs), eitherChoice{choiceSpecs}, kind[called](calledSpecs),
}

// placeKeys are the keys that a place can have.
func placeKeys() []string {
	keys := slices.Concat(names(placeSpecs), names(inFileSpecs))
	for _, kind := range kinds {
		for _, k := range kind.help().Keys {
			keys = append(keys, k[0])
		}
	}
	return keys
}

// place reads the place in the table, for its knob or, without one, for another setting.
func (n *keyTable) place() Place {
	var p Place
	fill(n, placeSpecs, &p)
	if n.k == strategy.PinMemory && p.Words == nil && !n.Has("choose") {
		p.Words = map[strategy.Value][]any{"true": {true}, "false": {false}}
	}
	var found []string
	for _, kind := range kinds {
		key := kind.help().Keys[0][0]
		if !n.Has(key) {
			continue
		}
		if found = append(found, key); len(found) == 1 {
			p.PlaceKind = kind.read(n, &p)
		}
	}
	n.checkPlace(p, found)
	return p
}

// checkPlace reports contradictions; found are the kinds whose keys the table has.
func (n *keyTable) checkPlace(p Place, found []string) {
	file := n.Has("file") || n.Has("via")
	switch {
	case len(found) == 0 && n.Has("file"):
		n.fault("file", "the value's place in the file is missing: path = \"train.batch\"")
	case len(found) == 0:
		n.fault("", "has no place: add one of arg, env, override, file with path, choose, call")
	case len(found) > 1:
		n.fault(found[1], "%s and %s are two places: make them a list", found[0], found[1])
	case p.InFile() != nil && !file:
		n.fault(found[0], "no file is named: want file = \"conf.yaml\", or via = { arg = \"--config\" }")
	case p.InFile() == nil && file:
		n.fault(found[0], "a file goes with a path, not with %s", found[0])
	}
	if n.Has("keyword") && !isA[called](p.PlaceKind) {
		n.fault("keyword", "a keyword goes with a call")
	}
	if n.Has("no") && !p.flag() {
		n.fault("no", "only a flag has an opposite: give it values that are true and false")
	}
	if n.k.Whole() && (p.Words != nil || n.Has("choose")) {
		n.fault("", "the knob's values are whole numbers, which need no words")
	}
}

// optionalPlaces reads a list of places that belong to no knob, in files that need not be named.
func (n *keyTable) optionalPlaces(key string) []Place {
	tables, ok := n.Tables(key)
	if !ok {
		n.fault(key, "want [[%s]] tables", key)
	}
	var places []Place
	for _, t := range tables {
		inner := n.of(t, placeKeys())
		inner.k, inner.optional = "", true
		places = append(places, inner.place())
		inner.done()
	}
	return places
}
