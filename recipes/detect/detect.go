package detect

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/recipes/edit"
	"github.com/gpurun/gpurun/recipes/format"
)

// detection finds a framework's signs in a command.
type detection format.Detection

// Detect finds the recipe of the framework that a command uses. The script's imports decide if
// its source is known; then an argument or a key of a configuration file has to show that the
// knobs can be changed from the command line. Evidence has the signs by which the recipe was
// recognised, for people.
func Detect(cmd format.Command, among []format.Recipe) (found format.Recipe, evidence []string, ok bool) {
	candidates := Candidates(cmd, among)
	n := 0
	for _, c := range candidates {
		if c.Matched && c.Yields == "" {
			found, evidence = c.Recipe, c.Evidence
			n++
		}
	}
	if n != 1 {
		return format.Recipe{}, nil, false
	}
	return found, evidence, true
}

// Outdated lists, for people, the recipes that only the versions of the installed packages keep
// from being chosen, one for each package. A package that the chosen recipe knows is not in it.
func Outdated(cmd format.Command, among []format.Recipe, chosen format.Recipe) []string {
	installed, known := cmd.Packages, maps.Clone(chosen.Versions)
	if known == nil {
		known = format.Versions{}
	}
	cmd.Packages = nil
	instead := "gpurun does not use it"
	if chosen.Name != "" {
		instead = "gpurun uses the recipe " + chosen.Name
	}
	var all []string
	for _, c := range Candidates(cmd, among) {
		name, here, outside := strings.Cut(c.Recipe.Versions.Outside(installed), " ")
		if !c.Matched || c.Yields != "" || !outside || known[name] != "" {
			continue
		}
		known[name] = here
		all = append(all, fmt.Sprintf("the recipe %s needs %s %s, and here is %s: %s", c.Recipe.Name, name,
			c.Recipe.Versions[name], here, instead))
	}
	return all
}

// A Match is a recipe with some of its signs in a command.
type Match struct {
	Recipe   format.Recipe
	Evidence []string
	// Matched: the signs suffice.
	Matched bool
	// Own: the command starts the framework's own program.
	Own bool
	// Yields is the matching recipe that takes precedence; empty: none.
	Yields string
}

// Candidates lists the recipes with signs in a command, sufficient or not.
func Candidates(cmd format.Command, among []format.Recipe) []Match {
	var all []Match
	sources := entry(cmd)
	for _, r := range among {
		if evidence, matched := detection(r.Detection).match(r, cmd, sources); len(evidence) > 0 {
			all = append(all, Match{Recipe: r, Evidence: evidence, Matched: matched,
				Own: detection(r.Detection).program(cmd) != ""})
		}
	}
	for i, c := range all {
		for _, other := range all {
			// A command starts only one framework's own program; signs of another can also be
			// there.
			stronger := other.Own && !c.Own && !slices.Contains(c.Recipe.Detection.Over, other.Recipe.Name)
			if other.Matched && (stronger || slices.Contains(other.Recipe.Detection.Over, c.Recipe.Name)) {
				all[i].Yields = other.Recipe.Name
			}
		}
	}
	return all
}

// match compares a command, and the sources that show its framework, with the signs of one
// framework.
func (t detection) match(r format.Recipe, cmd format.Command, sources []format.Source) (evidence []string,
	matched bool) {
	if outside := r.Versions.Outside(cmd.Packages); outside != "" || t.Not != nil && t.Not(cmd) != "" {
		return nil, false
	}
	if program := t.program(cmd); program != "" {
		return append([]string{"the job is " + program}, t.marks(r, cmd).all()...), true
	}
	if pieces := t.source(cmd); pieces != nil {
		return append([]string{"the script has " + strings.Join(pieces, " and ")}, t.marks(r, cmd).all()...), true
	}
	marks := t.marks(r, cmd)
	enough := len(marks.all()) > 0
	switch {
	case len(t.Imports)+len(t.Text) == 0:
	case cmd.Script == nil:
		// Scripts without a framework also have arguments of these names. The keys of its
		// configuration are unique to a framework.
		enough = len(marks.all()) > 1 && len(marks.keys) > 0
	default:
		if slices.ContainsFunc(t.Unless, func(name string) bool { return anyImports(sources, name) }) {
			return nil, false
		}
		for _, name := range t.Imports {
			if line := who(sources[0], name) + " imports " + spelled(name); anyImports(sources, name) &&
				!slices.Contains(evidence, line) {
				evidence = append(evidence, line)
			}
		}
		for _, text := range t.Text {
			if slices.ContainsFunc(sources, func(s format.Source) bool { return bytes.Contains(s.Text, []byte(text)) }) {
				evidence = append(evidence, "the script has "+text)
			}
		}
		if evidence == nil {
			return nil, false
		}
	}
	return append(evidence, marks.all()...), enough
}

// spelled is a member of a package for people, who may import it from another module of the package.
func spelled(name string) string {
	dot := strings.LastIndexByte(name, '.')
	if member := name[dot+1:]; dot > 0 && strings.ToLower(member) != member {
		root, _, _ := strings.Cut(name, ".")
		return member + " (" + root + ")"
	}
	return name
}

// who names the source that imports a name: the script, or its module that reads the arguments.
func who(script format.Source, name string) string {
	if imports(script, name) {
		return "the script"
	}
	return "the module that reads the script's arguments"
}

// entry lists the sources by which a job's framework is recognised: the script, and, if it does
// not read its command line, the nearest of its modules that does. A script may be only an import
// and a call, such as the train_mem.py of LLaVA.
func entry(cmd format.Command) []format.Source {
	if cmd.Script == nil {
		return nil
	}
	sources := []format.Source{{Text: cmd.Script}}
	for i, file := range cmd.Code {
		if file.Reads && i > 0 {
			sources = append(sources, cmd.Modules[i-1])
		}
		if file.Reads {
			break
		}
	}
	return sources
}

// OwnProgram reports whether a command starts the own program of one of the frameworks, whose
// recipe is recognised by its name.
func OwnProgram(cmd format.Command, among []format.Recipe) bool {
	return slices.ContainsFunc(among, func(r format.Recipe) bool { return detection(r.Detection).program(cmd) != "" })
}

// program is the framework's own program that the command starts; empty: none.
func (t detection) program(cmd format.Command) string {
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

// source returns the pieces of the script's source that alone identify the framework; nil if none do.
func (t detection) source(cmd format.Command) []string {
	for _, pieces := range t.Source {
		if !slices.ContainsFunc(pieces, func(text string) bool { return !hasCode(cmd.Script, text) }) {
			return pieces
		}
	}
	return nil
}

// hasCode reports whether a script has a piece of code, outside of comments.
func hasCode(script []byte, piece string) bool {
	for before, rest, found := bytes.Cut(script, []byte(piece)); found; before, rest, found = bytes.Cut(rest,
		[]byte(piece)) {
		if line := before[bytes.LastIndexByte(before, '\n')+1:]; !bytes.ContainsRune(line, '#') {
			return true
		}
	}
	return false
}

// marks are the arguments, the variables and the keys of configuration files, and the calls in
// code, that point to a framework, for people.
type marks struct{ arguments, variables, keys, calls []string }

func (m marks) all() []string { return slices.Concat(m.arguments, m.variables, m.keys, m.calls) }

// typed is the name of an argument as a command spells it, with dashes or underscores.
func typed(cmd format.Command, name string) string {
	plain := func(word string) string { return strings.ReplaceAll(word, "-", "_") }
	for _, word := range cmd.Argv {
		if word, _, _ := strings.Cut(word, "="); plain(word) == plain(name) {
			return word
		}
	}
	return name
}

// marks lists the signs in a command.
func (t detection) marks(r format.Recipe, cmd format.Command) marks {
	var found marks
	d := format.NewDraft(r, cmd)
	for _, name := range t.Args {
		if d.Has(name) {
			found.arguments = append(found.arguments, "the command has "+typed(cmd, name))
		}
	}
	for _, key := range t.Overrides {
		if d.HasOverride(key) {
			found.arguments = append(found.arguments, "the command has "+key+"=")
		}
	}
	for _, name := range r.CalledBy(cmd) {
		found.calls = append(found.calls, "the code calls "+name)
	}
	for _, name := range t.Env {
		if cmd.Env[name] != "" {
			found.variables = append(found.variables, "the launcher sets "+name)
		}
	}
	for _, file := range r.FilesNamed(cmd) {
		kind, known := edit.FormatOf(file, cmd.Files[file])
		if !known {
			continue
		}
		var held []string
		for _, key := range t.Keys {
			if _, there, err := edit.Get(kind, cmd.Files[file], key); there && err == nil {
				held = append(held, key)
			}
		}
		if len(held) > 0 {
			found.keys = append(found.keys, fmt.Sprintf("%s has %s", file, strings.Join(held, ", ")))
		}
	}
	return found
}
