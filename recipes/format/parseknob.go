package format

import (
	"fmt"
	"slices"

	"github.com/gpurun/gpurun/strategy"
)

func knobNames() []string {
	names := make([]string, len(strategy.Knobs))
	for i, k := range strategy.Knobs {
		names[i] = string(k)
	}
	return names
}

// parseKnobs reads a table of knobs.
func parseKnobs(n *table) map[strategy.Knob]Knob {
	knobs := map[strategy.Knob]Knob{}
	for _, k := range strategy.Knobs {
		if !n.Has(string(k)) {
			continue
		}
		if k == strategy.Allocator {
			n.fault(string(k), "the allocator is the same for every job, and needs no entry")
			continue
		}
		knobs[k] = parseKnob(n, k)
	}
	n.allowed = knobNames()
	n.done()
	return knobs
}

// parseKnob reads one knob: "derived", a place, or a list of places.
func parseKnob(parent *table, k strategy.Knob) Knob {
	var knob Knob
	value, _ := parent.Get(string(k))
	switch v := value.(type) {
	case string:
		if v != strategy.ScopeDerived || k != strategy.GradientAccumulationSteps {
			parent.fault(string(k), "%q is not a place: want a table such as { arg = \"--x\" }", v)
		}
		knob.Scope = strategy.ScopeDerived
	case map[string]any:
		n := parent.of(parent.Inner(v, string(k)), inKnob, inPlace)
		ofKnob(n, k, &knob)
		several, weaker := n.Has("places"), n.Has("alternatives")
		switch {
		case several && weaker:
			n.fault("alternatives", "a knob has either places, which agree, or alternatives")
		case weaker:
			knob.Alternatives = true
			n.optional = true
			parsePlaces(n, "alternatives", k, &knob)
		case several:
			parsePlaces(n, "places", k, &knob)
		case knob.Absent == "" && knob.Global == nil:
			knob.Places = []Place{parsePlace(n, k)}
		}
		n.done()
	default:
		parsePlaces(parent, string(k), k, &knob)
	}
	checkKnob(parent.of(parent.Inner(nil, string(k)), inKnob), k, &knob)
	return knob
}

// parsePlaces reads a list of places; what belongs to the whole knob may stand
// in any of them.
func parsePlaces(n *table, key string, k strategy.Knob, knob *Knob) {
	tables, ok := n.Tables(key)
	if !ok || len(tables) == 0 {
		n.fault(key, "want a table such as { arg = \"--x\" }, or a list of such tables")
		return
	}
	for _, t := range tables {
		inner := n.of(t, inKnob, inPlace)
		ofKnob(inner, k, knob)
		knob.Places = append(knob.Places, parsePlace(inner, k))
		inner.done()
	}
}

// ofKnob reads what belongs to the knob rather than to one of its places.
func ofKnob(n *table, k strategy.Knob, knob *Knob) {
	if value, there := n.Get("default"); there {
		knob.Default = strategy.Value(fmt.Sprint(value))
	}
	parseBounds(n, knob)
	if scope := n.text("scope"); scope != "" {
		knob.Scope = scope
		counts := k == strategy.GradientAccumulationSteps || k == strategy.MicroBatchSize || k == strategy.EvalBatchSize
		if scope != strategy.ScopeGlobal || !counts {
			n.fault("scope", `only the batch sizes and gradient_accumulation_steps have a scope, and it is "global"`)
		}
	}
	knob.Weights = n.truth("weights") || knob.Weights
	knob.Given = n.truth("given") || knob.Given
	if absent := n.text("absent"); absent != "" {
		knob.Absent = absent
	}
	if followed := n.text("knob"); followed != "" {
		knob.Follows = strategy.Knob(followed)
		if k != strategy.EvalBatchSize || knob.Follows != strategy.MicroBatchSize || knob.Absent == "" {
			n.fault("knob", `only an eval_batch_size that is absent follows another knob, "micro_batch_size"`)
		}
	}
	parseGlobal(n, k, knob)
	knob.Also = append(knob.Also, parseSettings(n, "also", k)...)
	knob.Unless = append(knob.Unless, parseConditions(n, k)...)
}

// parseBounds reads min, a number or another knob's name, and max.
func parseBounds(n *table, knob *Knob) {
	if value, _ := n.Get("min"); isText(value) {
		knob.MinOf = strategy.Knob(n.text("min"))
		if !knob.MinOf.Whole() {
			n.fault("min", "%q is no knob that counts something", knob.MinOf)
		}
	} else {
		knob.Min = max(knob.Min, n.number("min"))
	}
	if limit := n.number("max"); limit > 0 {
		knob.Max = limit
	}
}

func isText(value any) bool {
	_, is := value.(string)
	return is
}

// parseGlobal reads where accumulation is derived from.
func parseGlobal(n *table, k strategy.Knob, knob *Knob) {
	places := optionalPlaces(n, "global")
	switch {
	case !n.Has("global"):
		return
	case k != strategy.GradientAccumulationSteps:
		n.fault("", "only gradient_accumulation_steps has global")
		return
	}
	knob.Global = &Global{Places: places}
	knob.DefaultIsGlobal()
}

// DefaultIsGlobal makes the knob's default that of the global batch.
func (knob *Knob) DefaultIsGlobal() {
	if size, whole := knob.Default.Number(); whole {
		knob.Global.Default, knob.Default = size, ""
	}
}

// checkKnob holds what was read against the knob's own values.
func checkKnob(n *table, k strategy.Knob, knob *Knob) {
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

// checkDefault holds a default against the words of the places.
func checkDefault(n *table, k strategy.Knob, knob *Knob) {
	if !n.knobValue(k, "default", string(knob.Default)) {
		return
	}
	for i, p := range knob.Places {
		if i > 0 && knob.Alternatives || p.Kind == nil {
			break
		}
		if words := p.writable(strategy.Vocabulary(k)); words != nil && p.Reads[knob.Default] == nil && !slices.Contains(words, knob.Default) {
			n.fault("default", "%s has no word for %q, only for %s", p, knob.Default, Join(words))
		}
	}
}

// parseSettings reads settings that gpurun writes; those of a knob can depend on
// its new value.
func parseSettings(n *table, key string, k strategy.Knob) []Setting {
	var settings []Setting
	for _, inner := range n.list(key, inSetting, inPlace) {
		s := Setting{Reason: inner.text("reason"), Keep: inner.truth("keep"), Value: inner.value("value")}
		if k != "" {
			s.When = valuesIn(inner, k, "when")
		}
		inner.optional = false
		s.Place = parsePlace(inner, "")
		if a, ok := s.Place.Kind.(flagged); ok {
			if _, isBool := s.Value.(bool); isBool {
				s.Place.Kind = a.asFlag()
			}
		}
		inner.done()
		settings = append(settings, s)
	}
	return settings
}

// valuesIn reads a list of a knob's values; nil where there is none.
func valuesIn(n *table, k strategy.Knob, key string) []strategy.Value {
	var values []strategy.Value
	for _, word := range n.texts(key) {
		n.knobValue(k, key, word)
		values = append(values, strategy.Value(word))
	}
	return values
}

// parseConditions reads what keeps a knob from being turned.
func parseConditions(n *table, k strategy.Knob) []Condition {
	var conditions []Condition
	for _, inner := range n.list("unless", inCondition, inPlace) {
		c := Condition{
			Is: inner.texts("is"), Values: valuesIn(inner, k, "values"), Reason: inner.text("reason"), Ranks: inner.number("ranks"),
			Unknown: inner.truth("unknown"), Missing: inner.truth("missing"),
		}
		if c.Reason == "" {
			inner.fault("reason", "why it cannot be turned is missing")
		}
		switch {
		case c.Ranks > 0:
		case inner.Has("knob"):
			c.Knob = inner.knob("knob")
		default:
			inner.optional = true
			c.Place = parsePlace(inner.without("values"), "") // they are the knob's, not words of the place
		}
		inner.done()
		conditions = append(conditions, c)
	}
	return conditions
}

// without is the table without a key.
func (n *table) without(key string) *table {
	rest := map[string]any{}
	for _, name := range n.Keys() {
		if name != key {
			rest[name], _ = n.Get(name)
		}
	}
	return &table{Table: n.Inner(rest), allowed: n.allowed, optional: n.optional}
}

// optionalPlaces reads a list of places that belong to no knob of their own.
func optionalPlaces(n *table, key string) []Place {
	var places []Place
	for _, inner := range n.list(key, inPlace) {
		inner.optional = true
		places = append(places, parsePlace(inner, ""))
		inner.done()
	}
	return places
}
