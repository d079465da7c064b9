package recipes

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/recipes/patch"
)

// A draft is a command on its way from the original to what a plan wants.
type draft struct {
	recipe   Recipe
	original Command
	grammar  patch.Argv
	argv     []string
	at       Topology
	env      map[string]string // only what changed
	files    map[string][]byte // only what changed, by path as written
	alone    map[string]bool   // files whose copies need no siblings
	copies   map[string]string // changed files by path as written, to their new name
	named    map[string]Via    // changed files that this argument or variable names
	// sole is the path of the one file that holds all arguments, empty where
	// they are words of the command line.
	sole string
}

func newDraft(r Recipe, cmd Command) *draft {
	d := &draft{
		recipe:   r,
		original: cmd,
		grammar: patch.Argv{
			Dashes: r.Grammar.Dashes, Booleans: r.Grammar.Booleans, Short: r.abbreviable(),
			Equals: r.Grammar.Equals, Last: r.Grammar.Last,
		},
		argv:   slices.Clone(cmd.Argv),
		env:    map[string]string{},
		files:  map[string][]byte{},
		alone:  map[string]bool{},
		copies: map[string]string{},
		named:  map[string]Via{},
	}
	if r.Grammar.File && len(cmd.Argv) >= 2 && (len(cmd.Argv) == 2 || r.Grammar.Overrides && onlyOverrides(cmd.Argv[2:])) {
		if _, known := patch.FormatOf(cmd.Argv[1], nil); known {
			d.sole = cmd.Argv[1]
		}
	}
	return d
}

// onlyOverrides reports whether all words are of the form key=value.
func onlyOverrides(words []string) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, "-") || !strings.Contains(w, "=") })
}

// places are those of a knob that exist in the installed versions.
func (d *draft) places(knob Knob) []Place { return d.existing(knob.Places) }

func (d *draft) existing(places []Place) []Place {
	return slices.DeleteFunc(slices.Clone(places), func(p Place) bool { return p.Versions.outside(d.original.Packages) != "" })
}

// abbreviable lists the recipe's long arguments, where the framework lets them
// be cut short.
func (r Recipe) abbreviable() []string {
	if !r.Grammar.Abbreviations {
		return nil
	}
	names := map[string]bool{}
	for _, knob := range r.Knobs {
		for _, p := range knob.Places {
			for _, name := range append(p.options(), p.Arg, p.No) {
				if strings.HasPrefix(name, "--") {
					names[name] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// variable is an environment variable as the draft has it.
func (d *draft) variable(name string) (string, bool) {
	if v, changed := d.env[name]; changed {
		return v, true
	}
	v, set := d.original.Env[name]
	return v, set
}

func (d *draft) setVariable(name, value string) {
	if old, set := d.original.Env[name]; set && old == value {
		delete(d.env, name)
		return
	}
	d.env[name] = value
}

// inline recognises a file's text that stands in the command instead of a path.
func inline(file string) bool { return strings.HasPrefix(strings.TrimSpace(file), "{") }

// shown is a file's name in messages.
func shown(file string) string {
	if inline(file) {
		return "the JSON on the command line"
	}
	return file
}

// text is a file's text as the draft has it.
func (d *draft) text(file string) ([]byte, error) {
	if text, changed := d.files[file]; changed {
		return text, nil
	}
	if inline(file) {
		return []byte(file), nil
	}
	text, loaded := d.original.Files[file]
	if !loaded {
		return nil, fmt.Errorf("there is no %s", file)
	}
	return text, nil
}

// value reads one value of a file.
func (d *draft) value(file, at string) (any, bool, error) {
	text, err := d.text(file)
	if err != nil {
		return nil, false, err
	}
	format, known := patch.FormatOf(file, text)
	if !known {
		return nil, false, fmt.Errorf("%s is neither JSON, YAML nor TOML", shown(file))
	}
	value, found, err := patch.Get(format, text, at)
	if err != nil {
		return nil, false, fmt.Errorf("read %s: %w", shown(file), err)
	}
	return value, found, nil
}

// setValue changes one value of a file.
func (d *draft) setValue(file, at string, value any) error {
	text, err := d.text(file)
	if err != nil {
		return err
	}
	format, known := patch.FormatOf(file, text)
	if !known {
		return fmt.Errorf("%s is neither JSON, YAML nor TOML", shown(file))
	}
	next, err := patch.Set(format, text, at, value)
	if err != nil {
		return fmt.Errorf("change %s: %w", shown(file), err)
	}
	d.files[file] = next
	return nil
}

// file finds the file that a place is in: the value of an argument or variable
// that names it, else the path that the recipe gives.
func (d *draft) file(p Place) (file string, named Via, found bool) {
	for _, via := range p.Via {
		value, there := d.follow(via)
		_, known := patch.FormatOf(value, nil)
		if there && value != "" && (known || via.Any || inline(value) || len(p.Via) == 1 && !p.Optional) {
			return value, via, true
		}
	}
	if p.File == "" {
		return "", Via{}, false
	}
	if len(p.Via) > 0 && !d.names(p.File) {
		return p.File, p.Via[0], true
	}
	return p.File, Via{}, true
}

// follow is the path that a via holds.
func (d *draft) follow(via Via) (value string, there bool) {
	switch {
	case via.Arg != "":
		return d.argument(via.Arg)
	case via.Env != "":
		return d.variable(via.Env)
	case via.Override != "":
		return patch.Override(d.argv, via.Override)
	case via.Word > 0:
		words := plainWords(d.argv)
		if len(words) < via.Word {
			return "", false
		}
		return words[via.Word-1], true
	}
	file, there := d.follow(*via.In)
	if !there {
		return "", false
	}
	held, there, err := d.value(file, via.Path)
	text, isText := held.(string)
	return text, there && err == nil && isText
}

// plainWords are the words of a command that are no options, no option's value
// and no key=value.
func plainWords(argv []string) []string {
	var words []string
	for i := 1; i < len(argv); i++ {
		before := argv[i-1]
		optioned := i > 1 && strings.HasPrefix(before, "-") && !strings.Contains(before, "=")
		if !strings.HasPrefix(argv[i], "-") && !optioned && !strings.Contains(argv[i], "=") {
			words = append(words, argv[i])
		}
	}
	return words
}

// changeFile is setValue for a place's file; it remembers how the copy is to be
// told to the job.
func (d *draft) changeFile(p Place, at string, value any) error {
	file, via, found := d.file(p)
	if !found {
		return fmt.Errorf("the command names no file that holds %s", at)
	}
	if err := d.setValue(file, at, value); err != nil {
		return err
	}
	d.alone[file] = p.Alone
	if via != (Via{}) {
		d.named[file] = via
	}
	return nil
}

// argument is the text of an argument, on the command line or in the sole file.
// One without a value counts as absent.
func (d *draft) argument(name string) (string, bool) {
	if d.sole != "" {
		value, found, err := d.soleValue(name)
		if err != nil || !found || value == nil {
			return "", false
		}
		return fmt.Sprint(value), true
	}
	value, found, err := d.grammar.Get(d.argv, name)
	return value, found && err == nil
}

// soleKey is an argument's name in a file that holds all arguments.
func soleKey(name string) string {
	return strings.ReplaceAll(strings.TrimLeft(name, "-"), "-", "_")
}

// soleValue is an argument's value in the file that holds all arguments, or in a
// word that overrides it.
func (d *draft) soleValue(name string) (any, bool, error) {
	if d.recipe.Grammar.Overrides {
		if value, found := patch.Override(d.argv, soleKey(name)); found {
			return value, true, nil
		}
	}
	return d.value(d.sole, soleKey(name))
}

// setSole changes what soleValue reads.
func (d *draft) setSole(name string, value any) error {
	if d.recipe.Grammar.Overrides {
		if _, found := patch.Override(d.argv, soleKey(name)); found {
			d.argv = d.grammar.SetOverride(d.argv, "", soleKey(name), fmt.Sprint(value))
			return nil
		}
	}
	return d.setValue(d.sole, soleKey(name), value)
}

// spelling is the name by which the command gives an argument, of several the one
// that stands last and counts; else the argument's first name.
func (d *draft) spelling(p Place) string {
	best, at := p.Arg, d.grammar.At(d.argv, p.Arg)
	for _, name := range p.Aliases {
		if i := d.grammar.At(d.argv, name); i > at {
			best, at = name, i
		}
	}
	return best
}
