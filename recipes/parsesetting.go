package recipes

import (
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/gpurun/gpurun/strategy"
)

// tables reads a list of tables at a key.
func (n *node) tables(key string) []*node {
	value, there := n.take(key)
	if !there {
		return nil
	}
	list, ok := tablesOf(value)
	if !ok {
		n.fault(key, fmt.Sprintf("want [[%s]] tables", key))
		return nil
	}
	nodes := make([]*node, len(list))
	for i, table := range list {
		nodes[i] = n.inner(table, key)
		nodes[i].key = append(nodes[i].key, fmt.Sprint(i))
	}
	return nodes
}

// placeIn reads a place that belongs to no knob of its own.
func placeIn(n *node) Place { return parsePlace(n, "") }

// expression reads a regular expression.
func expression(n *node, key string) string {
	text := n.text(key)
	if _, err := regexp.Compile(text); err != nil {
		n.fault(key, err.Error())
	}
	return text
}

func parseVersions(n *node, key string) Versions {
	table, there := n.tableOf(key)
	if !there {
		return nil
	}
	versions := Versions{}
	inner := n.inner(table, key)
	for _, name := range slices.Sorted(maps.Keys(table)) {
		versions[name] = inner.text(name)
	}
	if err := versions.check(); err != nil {
		n.fault(key, err.Error())
	}
	return versions
}

// parseSettings reads settings that gpurun writes; those of a knob can depend on
// its new value.
func parseSettings(n *node, key string, k strategy.Knob) []Setting {
	var settings []Setting
	for _, inner := range n.tables(key) {
		s := Setting{Reason: inner.text("reason"), Keep: inner.truth("keep")}
		value, there := inner.take("value")
		switch value.(type) {
		case string, bool, int64, float64:
			s.Value = value
		default:
			if there {
				inner.fault("value", "want a word, a number or a truth value")
			} else {
				inner.fault("value", "what is to be written is missing")
			}
		}
		if k != "" {
			s.When = valuesIn(inner, k, "when")
		}
		s.Place = placeIn(inner)
		inner.done()
		settings = append(settings, s)
	}
	return settings
}

// valuesIn reads a list of a knob's values; nil where there is none.
func valuesIn(n *node, k strategy.Knob, key string) []strategy.Value {
	var values []strategy.Value
	for _, word := range n.texts(key) {
		checkWord(n, k, key, word)
		values = append(values, strategy.Value(word))
	}
	return values
}

// parseConditions reads what keeps a knob from being turned.
func parseConditions(n *node, k strategy.Knob) []Condition {
	var conditions []Condition
	for _, inner := range n.tables("unless") {
		c := Condition{Knob: strategy.Knob(inner.text("knob")), Is: inner.texts("is"), Reason: inner.text("reason"), Ranks: inner.number("ranks"), Repeated: inner.truth("repeated"), Unknown: inner.truth("unknown"), Missing: inner.truth("missing")}
		c.Values = valuesIn(inner, k, "values")
		inner.table = maps.Clone(inner.table)
		delete(inner.table, "values") // the knob's, not words of the place
		if c.Reason == "" {
			inner.fault("reason", "why it cannot be turned is missing")
		}
		switch {
		case c.Ranks > 0:
		case c.Knob == "":
			c.Place = placeIn(inner)
			c.Place.Optional = true
		case !slices.Contains(strategy.Knobs, c.Knob):
			inner.fault("knob", fmt.Sprintf("there is no knob %q", c.Knob))
		}
		inner.done()
		conditions = append(conditions, c)
	}
	return conditions
}

// parseGlobal reads where accumulation is derived from, and what counts micro-steps.
func parseGlobal(n *node, k strategy.Knob, knob *Knob) {
	nominal, fixed := n.text("nominal"), n.truth("fixed")
	knob.Scales = append(knob.Scales, optionalPlaces(n, "scales")...)
	_, there := n.table["global"]
	places := optionalPlaces(n, "global")
	if k != strategy.GradientAccumulationSteps && (there || nominal != "" || knob.Scales != nil) {
		n.fault("", "only gradient_accumulation_steps has global, nominal or scales")
		return
	}
	if !there && nominal == "" {
		return
	}
	if nominal != "" && nominal != "nearest" && nominal != "ceil" {
		n.fault("nominal", `want "nearest" or "ceil"`)
	}
	g := &Global{Places: places, Nominal: nominal, Fixed: fixed}
	if size, whole := knob.Default.Number(); whole {
		g.Default, knob.Default = size, ""
	}
	knob.Global = g
}

func parseCheckpoint(n *node) []Survival {
	var all []Survival
	for _, inner := range n.tables("checkpoint") {
		s := Survival{Knob: strategy.Knob(inner.text("knob")), Reason: inner.text("reason")}
		if !slices.Contains(strategy.Knobs, s.Knob) {
			inner.fault("knob", fmt.Sprintf("there is no knob %q", s.Knob))
		}
		value, _ := inner.take("survives")
		families, ok := value.([]any)
		for _, family := range families {
			words, isList := family.([]any)
			ok = ok && isList
			var values []strategy.Value
			for _, word := range words {
				checkWord(inner, s.Knob, "survives", fmt.Sprint(word))
				values = append(values, strategy.Value(fmt.Sprint(word)))
			}
			s.Families = append(s.Families, values)
		}
		if !ok {
			inner.fault("survives", `want a list of lists of values: [["zero1", "zero2"], ["zero3"]]`)
		}
		inner.done()
		all = append(all, s)
	}
	return all
}

func parseProofs(n *node) []Proof {
	var all []Proof
	for _, inner := range n.tables("proof") {
		p := Proof{Knob: strategy.Knob(inner.text("knob")), File: inner.text("file"), Path: inner.text("path")}
		p.Values = parseWords(inner, p.Knob, "values")
		if line := expression(inner, "line"); line != "" {
			p.Line, _ = regexp.Compile(line)
		}
		switch {
		case !slices.Contains(strategy.Knobs, p.Knob):
			inner.fault("knob", fmt.Sprintf("there is no knob %q", p.Knob))
		case (p.Line == nil) == (p.File == ""):
			inner.fault("", "want a line, or a file with a path")
		case p.Line != nil && p.Line.NumSubexp() < 1:
			inner.fault("line", "the expression needs a group around the value")
		}
		inner.done()
		all = append(all, p)
	}
	return all
}

// parseValues reads [resume.values]: places, and defaults as plain texts in a list's end.
func parseValues(n *node) (map[string][]Place, map[string]string) {
	table, there := n.tableOf("values")
	if !there {
		return nil, nil
	}
	values, defaults := map[string][]Place{}, map[string]string{}
	inner := n.inner(table, "values")
	for _, name := range slices.Sorted(maps.Keys(table)) {
		list, isList := table[name].([]any)
		if last := len(list) - 1; isList && last >= 0 {
			if text, isText := list[last].(string); isText {
				defaults[name] = text
				inner.table[name] = list[:last]
			}
		}
		values[name] = optionalPlaces(inner, name)
	}
	return values, defaults
}

// parseCreation reads how a new DeepSpeed configuration is told to the job.
func parseCreation(n *node) *Creation {
	table, there := n.tableOf("deepspeed")
	if !there {
		return nil
	}
	inner := n.inner(table, "deepspeed")
	defer inner.done()
	c := &Creation{Auto: inner.truth("auto")}
	if create, there := inner.tableOf("create"); there {
		c.Via = parseVia(inner.inner(create, "create"))
	}
	if c.Via.Arg == "" && c.Via.Env == "" {
		inner.fault("create", `want { arg = "--deepspeed" } or { env = "NAME" }`)
	}
	return c
}

// parseModel reads [parallel], the sizes that divide the ranks.
func parseModel(n *node) [][]Place {
	defer n.done()
	var sizes [][]Place
	for _, inner := range n.tables("model") {
		if _, several := inner.table["alternatives"]; several {
			sizes = append(sizes, optionalPlaces(inner, "alternatives"))
		} else {
			p := placeIn(inner)
			p.Optional = true
			sizes = append(sizes, []Place{p})
		}
		inner.done()
	}
	return sizes
}

// optionalPlaces reads a list of places that belong to no knob of their own.
func optionalPlaces(n *node, key string) []Place {
	var places []Place
	for _, inner := range n.tables(key) {
		p := placeIn(inner)
		p.Optional = true
		places = append(places, p)
		inner.done()
	}
	return places
}
