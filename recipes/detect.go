package recipes

import (
	"bytes"
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
	candidates := Candidates(cmd, among)
	n := 0
	for _, c := range candidates {
		if c.Matched && c.Yields == "" {
			found, evidence = c.Recipe, c.Evidence
			n++
		}
	}
	if n != 1 {
		return Recipe{}, nil, false
	}
	return found, evidence, true
}

// A Candidate is a recipe of whose marks a command has some.
type Candidate struct {
	Recipe   Recipe
	Evidence []string
	// Matched: the marks are enough.
	Matched bool
	// Yields is the matching recipe to which it gives way, empty for none.
	Yields string
}

// Candidates lists the recipes that a command has marks of, enough or not.
func Candidates(cmd Command, among []Recipe) []Candidate {
	var all []Candidate
	for _, r := range among {
		if evidence, matched := r.Detection.match(r, cmd); len(evidence) > 0 {
			all = append(all, Candidate{Recipe: r, Evidence: evidence, Matched: matched})
		}
	}
	for i, c := range all {
		for _, other := range all {
			if other.Matched && slices.Contains(other.Recipe.Detection.Over, c.Recipe.Name) {
				all[i].Yields = other.Recipe.Name
			}
		}
	}
	return all
}

// match holds a command against the marks of one framework.
func (t Detection) match(r Recipe, cmd Command) (evidence []string, matched bool) {
	if outside := r.Versions.outside(cmd.Packages); outside != "" {
		return nil, false
	}
	if program := t.program(cmd); program != "" {
		return append([]string{"the job is " + program}, t.marks(r, cmd)...), true
	}
	if t.source(cmd) {
		return append([]string{"the script has " + strings.Join(t.Source, " and ")}, t.marks(r, cmd)...), true
	}
	needed := 1
	switch {
	case len(t.Imports)+len(t.Text) == 0:
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
		for _, text := range t.Text {
			if bytes.Contains(cmd.Script, []byte(text)) {
				evidence = append(evidence, "the script has "+text)
			}
		}
		if evidence == nil {
			return nil, false
		}
	}
	marks := t.marks(r, cmd)
	return append(evidence, marks...), len(marks) >= needed
}

// program is the framework's own program that the command starts, empty for none.
func (t Detection) program(cmd Command) string {
	if len(cmd.Argv) == 0 {
		return ""
	}
	for _, name := range t.Programs {
		if cmd.Argv[0] == name || strings.HasSuffix(cmd.Argv[0], "/"+name) {
			return name
		}
	}
	return ""
}

// source reports whether the script's source is the framework's own by itself.
func (t Detection) source(cmd Command) bool {
	return len(t.Source) > 0 && !slices.ContainsFunc(t.Source, func(text string) bool { return !bytes.Contains(cmd.Script, []byte(text)) })
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
	for _, key := range t.Overrides {
		if _, given := patch.Override(cmd.Argv, key); given {
			marks = append(marks, "the command has "+key+"=")
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
