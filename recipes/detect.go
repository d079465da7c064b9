package recipes

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/recipes/patch"
)

// Detect finds the recipe of the framework that a command uses. The script's
// imports decide where its source is known; then an argument or a key of a
// configuration file has to show that the knobs are within reach of the command
// line. Evidence says by what the recipe was recognised, for people.
func Detect(cmd Command, among []Recipe) (found Recipe, evidence []string, ok bool) {
	type match struct {
		recipe   Recipe
		evidence []string
	}
	var matches []match
	for _, r := range among {
		if evidence, matched := r.Detection.match(r, cmd); matched {
			matches = append(matches, match{r, evidence})
		}
	}
	matches = slices.DeleteFunc(matches, func(m match) bool {
		return slices.ContainsFunc(matches, func(other match) bool {
			return slices.Contains(other.recipe.Detection.Over, m.recipe.Name)
		})
	})
	if len(matches) != 1 {
		return Recipe{}, nil, false
	}
	return matches[0].recipe, matches[0].evidence, true
}

// match holds a command against the marks of one framework.
func (t Detection) match(r Recipe, cmd Command) (evidence []string, matched bool) {
	needed := 1
	switch {
	case len(t.Imports) == 0:
	case cmd.Script == nil:
		needed = 2 // other frameworks use some of the names, too
	default:
		if slices.ContainsFunc(t.Unless, func(name string) bool { return imports(cmd.Script, name) }) {
			return nil, false
		}
		for _, name := range t.Imports {
			if imports(cmd.Script, name) {
				evidence = append(evidence, "the script imports "+name)
			}
		}
		if evidence == nil {
			return nil, false
		}
	}
	marks := t.marks(r, cmd)
	return append(evidence, marks...), len(marks) >= needed
}

// marks lists the arguments and keys that point to the framework.
func (t Detection) marks(r Recipe, cmd Command) []string {
	var marks []string
	d := newDraft(r, cmd)
	for _, name := range t.Args {
		if d.present(Place{Arg: name}) {
			marks = append(marks, "the command has "+name)
		}
	}
	for _, file := range r.FilesNamed(cmd) {
		format, known := patch.FormatOf(file, cmd.Files[file])
		if !known {
			continue
		}
		var held []string
		for _, key := range t.Keys {
			if _, there, err := patch.Get(format, cmd.Files[file], key); there && err == nil {
				held = append(held, key)
			}
		}
		if len(held) > 0 {
			marks = append(marks, fmt.Sprintf("%s has %s", file, strings.Join(held, ", ")))
		}
	}
	return marks
}
