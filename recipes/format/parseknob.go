package format

import (
	"reflect"
	"slices"

	"github.com/gpurun/gpurun/strategy"
)

func (knob *Knob) readKey(n *keyTable, key string) bool {
	switch key {
	case "places", "alternatives":
		knob.readPlaces(n, key, key == "alternatives")
	case "global":
		knob.readGlobal(n, key)
	case "scope":
		knob.readScope(n, key)
	case "knob":
		knob.readFollowed(n, key)
	case "min":
		knob.readLeast(n, key)
	default:
		return false
	}
	return true
}

func knobNames() []string { return Texts(strategy.Knobs) }

// Texts are names, or values, as text.
func Texts[S ~string](all []S) []string {
	words := make([]string, len(all))
	for i, s := range all {
		words[i] = string(s)
	}
	return words
}

// knobs reads a table of knobs.
func (n *keyTable) knobs(knobs map[strategy.Knob]Knob) {
	for _, k := range strategy.Knobs {
		switch {
		case !n.Has(string(k)):
		case k == strategy.Allocator:
			n.fault(string(k), "the allocator is the same for every job, and needs no entry")
		default:
			knobs[k] = n.knobAt(k)
		}
	}
	n.done()
}

// knobAt reads one knob: "derived", a place, or a list of places.
func (n *keyTable) knobAt(k strategy.Knob) Knob {
	var knob Knob
	value, _ := n.Get(string(k))
	n.k = k
	switch v := value.(type) {
	case string:
		if v != strategy.ScopeDerived || k != strategy.GradientAccumulationSteps {
			n.fault(string(k), "%q is not a place: want a table such as { arg = \"--x\" }", v)
		}
		knob.Scope = strategy.ScopeDerived
	case map[string]any:
		inner := n.of(n.Inner(v, string(k)), keysOf(reflect.TypeFor[Knob]()), PlaceKeys())
		inner.fill(&knob)
		several, weaker := inner.Has("places"), inner.Has("alternatives")
		switch {
		case several && weaker:
			inner.fault("alternatives", "a knob has either places, which agree, or alternatives")
		case len(v) == 1 && knob.Min > 0: // of the setting that is found without an entry
		case !several && !weaker && knob.Absent == "" && knob.Global == nil:
			knob.Places = []Place{inner.place()}
		}
		inner.done()
	default:
		knob.readPlaces(n, string(k), false)
	}
	checkKnob(n.of(n.Inner(nil, string(k))), k, &knob)
	return knob
}

// readPlaces reads a list of places; keys of the whole knob may be in any of them.
func (knob *Knob) readPlaces(n *keyTable, key string, alternatives bool) {
	tables, ok := n.Tables(key)
	if !ok || len(tables) == 0 {
		n.fault(key, "want a table such as { arg = \"--x\" }, or a list of such tables")
		return
	}
	knob.Alternatives = alternatives
	for _, t := range tables {
		inner := n.of(t, keysOf(reflect.TypeFor[Knob]()), PlaceKeys())
		inner.optional = n.optional || alternatives
		inner.fill(knob)
		knob.Places = append(knob.Places, inner.place())
		inner.done()
	}
}

func (knob *Knob) readScope(n *keyTable, key string) {
	knob.Scope = n.Filled(key)
	counts := n.k == strategy.GradientAccumulationSteps || n.k == strategy.MicroBatchSize || n.k == strategy.EvalBatchSize
	if knob.Scope != "" && (knob.Scope != strategy.ScopeGlobal || !counts) {
		n.fault(key, `only the batch sizes and gradient_accumulation_steps have a scope, and it is "global"`)
	}
}

func (knob *Knob) readFollowed(n *keyTable, key string) {
	knob.Follows = strategy.Knob(n.Filled(key))
	if knob.Follows != "" && (n.k != strategy.EvalBatchSize || knob.Follows != strategy.MicroBatchSize ||
		knob.Absent == "") {
		n.fault(key, `only an eval_batch_size that is absent follows another knob, "micro_batch_size"`)
	}
}

func (knob *Knob) readLeast(n *keyTable, key string) {
	if value, _ := n.Get(key); !isA[string](value) {
		n.Read(key, &knob.Min, 0, maxNumber)
		return
	}
	knob.MinOf = strategy.Knob(n.Filled(key))
	if !knob.MinOf.Whole() {
		n.fault(key, "%q is not a knob that counts something", knob.MinOf)
	}
}

func isA[T any](value any) bool {
	_, is := value.(T)
	return is
}

// readGlobal reads the source from which accumulation is derived.
func (knob *Knob) readGlobal(n *keyTable, key string) {
	places := n.optionalPlaces(key)
	if n.k != strategy.GradientAccumulationSteps {
		n.fault("", "only gradient_accumulation_steps has global")
		return
	}
	knob.Global = &Global{Places: places}
	knob.DefaultIsGlobal()
}

// DefaultIsGlobal makes the knob's default the default of the global batch.
func (knob *Knob) DefaultIsGlobal() {
	if size, whole := knob.Default.Number(); whole {
		knob.Global.Default, knob.Default = size, ""
	}
}

// checkKnob compares the settings of the knob with its own values.
func checkKnob(n *keyTable, k strategy.Knob, knob *Knob) {
	if knob.Max > 0 && knob.Min > knob.Max {
		n.fault("max", "the largest value %d is below the smallest, %d", knob.Max, knob.Min)
	}
	if !k.Whole() && (knob.Min > 0 || knob.Max > 0) {
		n.fault("min", "the knob's values are words, which have no bounds")
	}
	switch {
	case knob.Default == "":
		for _, p := range knob.Places {
			if knob.Default == "" {
				knob.Default = p.Implied
			}
		}
	case !k.Whole():
		checkDefault(n, k, knob)
	default:
		if number, whole := knob.Default.Number(); !whole || number < Least(k) {
			n.fault("default", "%q is not a whole number of at least %d", knob.Default, Least(k))
		}
	}
}

// checkDefault compares a default with the words of the places.
func checkDefault(n *keyTable, k strategy.Knob, knob *Knob) {
	if !n.knobValue(k, "default", string(knob.Default)) {
		return
	}
	for i, p := range knob.Places {
		if i > 0 && knob.Alternatives || p.PlaceKind == nil {
			break
		}
		if words := p.writable(strategy.Vocabulary(k)); words != nil && p.Reads[knob.Default] == nil &&
			!slices.Contains(words, knob.Default) {
			n.fault("default", "%s has no word for %q, only for %s", p, knob.Default, Join(words))
		}
	}
}

func (s *Setting) check(n *keyTable) {
	n.k, n.optional = "", false
	s.Place = n.place()
	if a, ok := s.Place.PlaceKind.(flagged); ok && isA[bool](s.Value) {
		s.Place.PlaceKind = a.asFlag()
	}
}

func (c *Condition) check(n *keyTable) {
	if c.Ranks > 0 || n.Has("knob") {
		return
	}
	n.k, n.optional = "", true
	n.taken = []string{"values"} // they are values of the knob, not words of the place
	c.Place = n.place()
}

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
