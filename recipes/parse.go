package recipes

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/gpurun/gpurun/strategy"
)

// Parse reads a recipe file. All its faults are reported together; the recipe is
// of use only where there are none.
func Parse(name string, text []byte) (Recipe, []Problem) {
	table := map[string]any{}
	if _, err := toml.Decode(string(text), &table); err != nil {
		var parse toml.ParseError
		if errors.As(err, &parse) {
			return Recipe{}, []Problem{{Message: fmt.Sprintf("%s:%d: %s", name, parse.Position.Line, parse.Message)}}
		}
		return Recipe{}, []Problem{{Message: fmt.Sprintf("%s: %s", name, err)}}
	}
	var r Recipe
	n := &node{table: table}
	r.Name, r.Title = n.text("name"), n.text("title")
	if r.Name == "" {
		n.fault("name", "a recipe needs a name")
	}
	r.Rules = n.texts("rules")
	for _, name := range r.Rules {
		if _, known := rules[name]; !known {
			n.fault("rules", fmt.Sprintf("there is no rule %q", name))
		}
	}
	r.Detection = parseDetection(n.child("detect"))
	r.Grammar = parseGrammar(n.child("grammar"))
	r.Resume = parseResume(n.child("resume"))
	r.Progress = parseProgress(n.child("progress"))
	r.Knobs = parseKnobs(n.child("knobs"))
	r.Creation = parseCreation(n)
	r.Versions = parseVersions(n, "versions")
	r.Model = parseModel(n.child("parallel"))
	r.OwnOOM = parseSettings(n, "own_oom", "")
	r.Relaunch = parseSettings(n, "relaunch", "")
	r.Checkpoint = parseCheckpoint(n)
	r.Proofs = parseProofs(n)
	if _, there := n.take("wrapper"); there {
		n.fault("wrapper", `is no part of a recipe: gpurun has a table of all launchers; for one that it lacks, set launch.ranks = "self"`)
	}
	n.done()
	return r, n.sorted()
}

// FromKnobs reads the [knobs] table of a train.toml, as a TOML decoder returns
// it. The recipe has no name.
func FromKnobs(table map[string]any) (Recipe, []Problem) {
	n := &node{table: table, key: []string{"knobs"}}
	r := Recipe{Knobs: parseKnobs(n)}
	return r, n.sorted()
}

func parseDetection(n *node) Detection {
	defer n.done()
	return Detection{
		Imports: n.texts("imports"), Unless: n.texts("unless"), Args: n.texts("args"), Keys: n.texts("keys"), Over: n.texts("over"),
		Overrides: n.texts("overrides"), Text: n.texts("text"), Source: n.texts("source"), Programs: n.texts("programs"),
	}
}

func parseGrammar(n *node) Grammar {
	defer n.done()
	return Grammar{
		Dashes: n.truth("dashes"), Booleans: n.truth("booleans"), Abbreviations: n.truth("abbreviations"), File: n.truth("file"),
		Overrides: n.truth("overrides"), Equals: n.truth("equals"), Last: n.texts("last"),
	}
}

func parseResume(n *node) Resume {
	defer n.done()
	resume := Resume{Latest: n.text("latest"), Args: n.texts("args"), Pointer: n.text("pointer"), Pointed: n.text("pointed"), Needs: n.texts("needs"), Pin: n.texts("pin"), PinUnder: n.text("pin_under"), Lost: expression(n, "lost")}
	resume.Data, resume.Shifts = n.text("data"), parseShifts(n)
	resume.Values, resume.Defaults = parseValues(n)
	return resume
}

// parseShifts reads what a changed knob does to the place in the data.
func parseShifts(n *node) map[strategy.Knob]string {
	inner := n.child("shifts")
	defer inner.done(knobNames()...)
	var shifts map[strategy.Knob]string
	for _, k := range strategy.Knobs {
		if text := inner.text(string(k)); text != "" {
			if shifts == nil {
				shifts = map[strategy.Knob]string{}
			}
			shifts[k] = text
		}
	}
	return shifts
}

func parseProgress(n *node) Progress {
	defer n.done()
	p := Progress{Step: n.text("step"), Nothing: expression(n, "nothing")}
	re, err := regexp.Compile(p.Step)
	switch {
	case err != nil:
		n.fault("step", err.Error())
	case p.Step != "" && re.NumSubexp() < 1:
		n.fault("step", "the expression needs a group around the number of the step")
	}
	return p
}

// parseKnobs reads a table of knobs.
func parseKnobs(n *node) map[strategy.Knob]Knob {
	knobs := map[strategy.Knob]Knob{}
	for _, k := range strategy.Knobs {
		value, there := n.take(string(k))
		if !there {
			continue
		}
		if k == strategy.Allocator {
			n.fault(string(k), "the allocator is the same for every job, and needs no entry")
			continue
		}
		knobs[k] = parseKnob(n, k, value)
	}
	n.done(knobNames()...)
	return knobs
}

func knobNames() []string {
	names := make([]string, len(strategy.Knobs))
	for i, k := range strategy.Knobs {
		names[i] = string(k)
	}
	return names
}

// parseKnob reads one knob: "derived", a place, or a list of places.
func parseKnob(parent *node, k strategy.Knob, value any) Knob {
	var knob Knob
	switch v := value.(type) {
	case string:
		if v != strategy.ScopeDerived || k != strategy.GradientAccumulationSteps {
			parent.fault(string(k), fmt.Sprintf("%q is not a place: want a table such as { arg = \"--x\" }", v))
		}
		knob.Scope = strategy.ScopeDerived
	case map[string]any:
		n := parent.inner(v, string(k))
		settings(n, k, &knob)
		alternatives, weaker := n.take("alternatives")
		places, there := n.take("places")
		switch {
		case weaker && there:
			n.fault("alternatives", "a knob has either places, which agree, or alternatives")
		case weaker:
			knob.Alternatives = true
			parsePlaces(n.inner(nil, "alternatives"), k, alternatives, &knob)
			for i := range knob.Places {
				knob.Places[i].Optional = true
			}
		case there:
			parsePlaces(n.inner(nil, "places"), k, places, &knob)
		case knob.Absent == "" && knob.Global == nil:
			knob.Places = []Place{parsePlace(n, k)}
		}
		n.done()
	default:
		parsePlaces(parent.inner(nil, string(k)), k, value, &knob)
	}
	checkKnob(parent.inner(nil, string(k)), k, &knob)
	return knob
}

// parsePlaces reads a list of places; what belongs to the whole knob may stand
// in any of them.
func parsePlaces(n *node, k strategy.Knob, value any, knob *Knob) {
	tables, ok := tablesOf(value)
	if !ok || len(tables) == 0 {
		n.fault("", "want a table such as { arg = \"--x\" }, or a list of such tables")
		return
	}
	for i, table := range tables {
		inner := n.inner(table, fmt.Sprint(i))
		settings(inner, k, knob)
		knob.Places = append(knob.Places, parsePlace(inner, k))
		inner.done()
	}
}

// settings reads what belongs to the knob rather than to one of its places.
func settings(n *node, k strategy.Knob, knob *Knob) {
	if value, there := n.take("default"); there {
		knob.Default = strategy.Value(fmt.Sprint(value))
	}
	if name, isText := n.table["min"].(string); isText {
		n.take("min")
		knob.MinOf = strategy.Knob(name)
		if !knob.MinOf.Whole() {
			n.fault("min", fmt.Sprintf("%q is no knob that counts something", name))
		}
	} else {
		knob.Min = max(knob.Min, n.number("min"))
	}
	if limit := n.number("max"); limit > 0 {
		knob.Max = limit
	}
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
	if unit := n.text("unit"); unit != "" {
		knob.Unit = unit
		if k != strategy.MicroBatchSize || unit != "tokens" && unit != "samples" {
			n.fault("unit", `only micro_batch_size has a unit, "samples" or "tokens"`)
		}
	}
	parseGlobal(n, k, knob)
	knob.Also = append(knob.Also, parseSettings(n, "also", k)...)
	knob.Unless = append(knob.Unless, parseConditions(n, k)...)
}

// checkKnob holds what was read against the knob's own values.
func checkKnob(n *node, k strategy.Knob, knob *Knob) {
	if knob.Max > 0 && knob.Min > knob.Max {
		n.fault("max", fmt.Sprintf("the largest value %d is below the smallest, %d", knob.Max, knob.Min))
	}
	if !k.Whole() && (knob.Min > 0 || knob.Max > 0) {
		n.fault("min", "the knob's values are words, which have no bounds")
	}
	if knob.Default == "" {
		knob.Default = implied(knob.Places)
		return
	}
	if !k.Whole() {
		if !checkWord(n, k, "default", string(knob.Default)) {
			return
		}
		for i, p := range knob.Places {
			if i > 0 && knob.Alternatives {
				break
			}
			if words := p.writable(strategy.Vocabulary(k)); words != nil && p.Reads[knob.Default] == nil && !slices.Contains(words, knob.Default) {
				n.fault("default", fmt.Sprintf("%s has no word for %q, only for %s", p, knob.Default, join(words)))
			}
		}
		return
	}
	if number, whole := knob.Default.Number(); !whole || number < least(k) {
		n.fault("default", fmt.Sprintf("%q is not a whole number of at least %d", knob.Default, least(k)))
	}
}

// implied is what an absent flag of the command line stands for.
func implied(places []Place) strategy.Value {
	for _, p := range places {
		if p.Arg == "" || !p.flag() {
			continue
		}
		for value, words := range p.Values {
			if slices.Contains(words, any(false)) {
				return value
			}
		}
	}
	return ""
}

// checkWord reports a word that the knob does not have, and returns whether it
// has it.
func checkWord(n *node, k strategy.Knob, key, word string) bool {
	vocabulary := strategy.Vocabulary(k)
	if vocabulary == nil || slices.Contains(vocabulary, strategy.Value(word)) {
		return true
	}
	words := make([]string, len(vocabulary))
	for i, v := range vocabulary {
		words[i] = string(v)
	}
	n.report(Problem{
		Key:     n.path(key),
		Message: fmt.Sprintf("%s is none of %s", word, strings.Join(words, ", ")),
		Suggest: nearest(word, words),
	})
	return false
}
