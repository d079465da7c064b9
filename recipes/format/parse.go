package format

import (
	"maps"
	"reflect"
	"slices"

	"github.com/gpurun/gpurun/recipes/edit"
)

// Parse reads a recipe file, which may name these rules; file is its name, for messages. The
// error has all its faults, each at its position.
func Parse(file string, text []byte, rules Rules) (Recipe, error) {
	failed := edit.FileError{File: file, Kind: "recipe that can be used"}
	values, fault := edit.DecodeTOML(text, "a recipe")
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
