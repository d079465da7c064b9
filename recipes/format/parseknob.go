package format

import (
	"slices"

	"github.com/gpurun/gpurun/strategy"
)

var knobSpecs = []spec[Knob]{
	{"default", "the value where no place holds one", func(k *Knob) any { return &k.Default }, ""},
	{"min", "the smallest value, a number or the name of another knob whose value it is", func(k *Knob) any { return leaf(k.readLeast) }, ""},
	{"max", "the largest value of a knob that is a whole number (for files of your own)", func(k *Knob) any { return &k.Max }, ""},
	{"scope", "`\"global\"`: accumulation, or a batch size, is counted over all data-parallel ranks", func(k *Knob) any { return leaf(k.readScope) }, ""},
	{"weights", "of precision: it sets the dtype of the weights, too", func(k *Knob) any { return &k.Weights }, ""},
	{"given", "the knob is there only where the command has its place: not every script takes the argument", func(k *Knob) any { return &k.Given }, ""},
	{"absent", "the framework cannot turn the knob, and why", func(k *Knob) any { return &k.Absent }, ""},
	{"knob", "of an `eval_batch_size` that is absent: the knob that evaluations take their batch from", func(k *Knob) any { return leaf(k.readFollowed) }, ""},
	{"alternatives", "the places of one setting, strongest first", func(k *Knob) any { return knobPlaces{k, true} }, ""},
	{"places", "places that are changed together and must agree", func(k *Knob) any { return knobPlaces{k, false} }, ""},
	{"global", "of accumulation: the places of a global batch from which the framework derives it", func(k *Knob) any { return knobGlobal{k} }, ""},
	{"also", "settings that are written with a new value of the knob", func(k *Knob) any { return &k.Also }, ""},
	{"unless", "conditions that keep the knob from being turned", func(k *Knob) any { return &k.Unless }, ""},
}

func knobNames() []string { return texts(strategy.Knobs) }

// texts are names, or values, as text.
func texts[S ~string](all []S) []string {
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
		inner := n.of(n.Inner(v, string(k)), names(knobSpecs), placeKeys())
		fill(inner, knobSpecs, &knob)
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
		knobPlaces{&knob, false}.read(n, string(k))
	}
	checkKnob(n.of(n.Inner(nil, string(k))), k, &knob)
	return knob
}

// knobPlaces reads a list of places; keys of the whole knob may be in any of them.
type knobPlaces struct {
	*Knob
	alternatives bool
}

func (p knobPlaces) read(n *keyTable, key string) {
	tables, ok := n.Tables(key)
	if !ok || len(tables) == 0 {
		n.fault(key, "want a table such as { arg = \"--x\" }, or a list of such tables")
		return
	}
	p.Alternatives = p.alternatives
	for _, t := range tables {
		inner := n.of(t, names(knobSpecs), placeKeys())
		inner.optional = n.optional || p.alternatives
		fill(inner, knobSpecs, p.Knob)
		p.Places = append(p.Places, inner.place())
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
	if knob.Follows != "" && (n.k != strategy.EvalBatchSize || knob.Follows != strategy.MicroBatchSize || knob.Absent == "") {
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

// knobGlobal reads the source from which accumulation is derived.
type knobGlobal struct{ *Knob }

func (g knobGlobal) read(n *keyTable, key string) {
	places := n.optionalPlaces(key)
	if n.k != strategy.GradientAccumulationSteps {
		n.fault("", "only gradient_accumulation_steps has global")
		return
	}
	g.Global = &Global{Places: places}
	g.DefaultIsGlobal()
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
		if words := p.writable(strategy.Vocabulary(k)); words != nil && p.Reads[knob.Default] == nil && !slices.Contains(words, knob.Default) {
			n.fault("default", "%s has no word for %q, only for %s", p, knob.Default, Join(words))
		}
	}
}

var settingSpecs = []spec[Setting]{
	{"value", "what is written", func(s *Setting) any { return &s.Value }, "what is to be written is missing"},
	{"when", "the knob's values that bring the setting", func(s *Setting) any { return &s.When }, ""},
	{"keep", "a value that is there stays", func(s *Setting) any { return &s.Keep }, ""},
	{"reason", "why, for people", func(s *Setting) any { return &s.Reason }, ""},
}

func (s *Setting) check(n *keyTable) {
	n.k, n.optional = "", false
	s.Place = n.place()
	if a, ok := s.Place.PlaceKind.(flagged); ok && isA[bool](s.Value) {
		s.Place.PlaceKind = a.asFlag()
	}
}

var conditionSpecs = []spec[Condition]{
	{"knob", "another knob, in place of a place", func(c *Condition) any { return &c.Knob }, ""},
	{"ranks", "a number of ranks, in place of both", func(c *Condition) any { return &c.Ranks }, ""},
	{"is", "the words that count; without it, any", func(c *Condition) any { return &c.Is }, ""},
	{"values", "the knob's values that are ruled out; without it, all", func(c *Condition) any { return &c.Values }, ""},
	{"reason", "why the knob cannot be turned", func(c *Condition) any { return &c.Reason }, "why it cannot be turned is missing"},
	{"unknown", "the knob's value is unknown although its places have one", func(c *Condition) any { return &c.Unknown }, ""},
}

func (c *Condition) check(n *keyTable) {
	if c.Ranks > 0 || n.Has("knob") {
		return
	}
	n.k, n.optional = "", true
	n.taken = []string{"values"} // they are values of the knob, not words of the place
	c.Place = n.place()
}
