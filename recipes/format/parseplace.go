package format

import (
	"reflect"

	"github.com/gpurun/gpurun/strategy"
)

// A placeTable is a place as it is written: the keys of one kind, and those of all.
type placeTable struct {
	Arg      spellings `toml:"arg"`
	No       string    `toml:"no"`
	Env      string    `toml:"env"`
	Override string    `toml:"override"`
	Under    string    `toml:"under"`
	Word     string    `toml:"word"`
	Assigned string    `toml:"assigned"`
	Path     string    `toml:"path"`
	File     string    `toml:"file"`
	Vias     []Via     `toml:"via"`
	Alone    bool      `toml:"alone"`
	Choose   any       `toml:"choose"`
	Call     string    `toml:"call"`
	Keyword  string    `toml:"keyword"`

	Auto     bool                     `toml:"auto"`
	There    bool                     `toml:"there"`
	Words    map[strategy.Value][]any `toml:"values"`
	Reads    map[strategy.Value][]any `toml:"reads"`
	Versions Versions                 `toml:"versions"`
}

// readKey: the kind reads the choices.
func (*placeTable) readKey(_ *keyTable, key string) bool { return key == "choose" }

// PlaceKeys are the keys that a place can have.
func PlaceKeys() []string { return keysOf(reflect.TypeFor[placeTable]()) }

// kinds are the kinds of place by the keys that only they have.
var kinds = []struct {
	key  string
	make func(n *keyTable, t placeTable, p *Place, in InFile) PlaceKind
}{
	{"arg", func(n *keyTable, t placeTable, p *Place, _ InFile) PlaceKind { return newArgument(n, t.Arg, t.No, p) }},
	{"env", func(_ *keyTable, t placeTable, _ *Place, _ InFile) PlaceKind { return variable{name: t.Env} }},
	{"override", func(_ *keyTable, t placeTable, _ *Place, _ InFile) PlaceKind {
		return override{key: t.Override, under: t.Under}
	}},
	{"word", func(_ *keyTable, t placeTable, _ *Place, _ InFile) PlaceKind { return beginning{text: t.Word} }},
	{"assigned", func(_ *keyTable, t placeTable, _ *Place, _ InFile) PlaceKind { return assigned{name: t.Assigned} }},
	{"path", func(_ *keyTable, t placeTable, _ *Place, in InFile) PlaceKind { return fileKey{in, t.Path} }},
	{"choose", func(n *keyTable, t placeTable, _ *Place, in InFile) PlaceKind { return newChoice(n, t.Under, in) }},
	{"call", func(n *keyTable, t placeTable, _ *Place, _ InFile) PlaceKind {
		return called{name: t.Call, keyword: t.Keyword, knob: n.k}
	}},
}

// place reads the place in the table, for its knob or, without one, for another setting.
func (n *keyTable) place() Place {
	var t placeTable
	n.fill(&t)
	p := Place{Auto: t.Auto, There: t.There, Words: t.Words, Reads: t.Reads, Versions: t.Versions}
	if n.k == strategy.PinMemory && p.Words == nil && !n.Has("choose") {
		p.Words = map[strategy.Value][]any{"true": {true}, "false": {false}}
	}
	var found []string
	in := InFile{path: t.File, vias: t.Vias, alone: t.Alone, optional: n.optional, auto: t.Auto}
	for _, kind := range kinds {
		if !n.Has(kind.key) {
			continue
		}
		if found = append(found, kind.key); len(found) == 1 {
			p.PlaceKind = kind.make(n, t, &p, in)
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
		inner := n.of(t, PlaceKeys())
		inner.k, inner.optional = "", true
		places = append(places, inner.place())
		inner.done()
	}
	return places
}
