package format

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/recipes/edit"
	"github.com/gpurun/gpurun/strategy"
)

// A Draft is a command between the original and the one for a plan.
type Draft struct {
	Recipe   Recipe
	Original Command
	At       Topology
	Argv     []string
	Env      map[string]string // only what changed
	Calls    []strategy.Call   // to be changed

	grammar edit.Argv
	all     string            // the file with all arguments; empty if they are words
	files   map[string][]byte // only what changed, by path as written
	alone   map[string]bool   // files whose copies need no siblings
	copies  map[string]string // changed files by path as written, to their new name
	named   map[string]Via    // changed files that this via names
}

// NewDraft returns the unchanged command under a recipe.
func NewDraft(r Recipe, cmd Command) *Draft {
	d := &Draft{
		Recipe:   r,
		Original: cmd,
		Argv:     slices.Clone(cmd.Argv),
		Env:      map[string]string{},
		Calls:    slices.Clone(cmd.Calls),
		grammar:  r.argv(),
		files:    map[string][]byte{},
		alone:    map[string]bool{},
		copies:   map[string]string{},
		named:    map[string]Via{},
	}
	d.grammar.Other = func(word string) bool { return !cmd.Parser.Abbreviates(word) }
	if r.Grammar.File && len(cmd.Argv) >= 2 && (len(cmd.Argv) == 2 || r.Grammar.Overrides && onlyOverrides(cmd.Argv[2:])) {
		if _, known := edit.FormatOf(cmd.Argv[1], nil); known {
			d.all = cmd.Argv[1]
		}
	}
	return d
}

// argv returns the way in which the recipe's command line is read.
func (r Recipe) argv() edit.Argv {
	argv := r.Grammar.Argv
	argv.Short = r.abbreviable()
	for _, p := range r.Places() {
		if b, ok := p.PlaceKind.(interface{ staysLast() string }); ok && !slices.Contains(argv.Last, b.staysLast()) {
			argv.Last = append(argv.Last, b.staysLast())
		}
	}
	slices.Sort(argv.Last)
	return argv
}

// onlyOverrides reports whether all words are of the form key=value.
func onlyOverrides(words []string) bool {
	return !slices.ContainsFunc(words, func(w string) bool {
		return strings.HasPrefix(w, "-") || !strings.Contains(w, "=")
	})
}

// Places lists the places of a knob that exist in the installed versions.
func (d *Draft) Places(knob Knob) []Place { return d.Existing(knob.Places) }

// Existing lists the places that exist in the installed versions.
func (d *Draft) Existing(places []Place) []Place {
	return slices.DeleteFunc(slices.Clone(places),
		func(p Place) bool { return p.Versions.Outside(d.Original.Packages) != "" })
}

// First returns the value of the first of the places that has one, and that place; nil: none has.
func (d *Draft) First(places []Place) (word any, from Place, err error) {
	for _, p := range d.Existing(places) {
		word, found, err := p.Read(d)
		if err != nil {
			return nil, p, fmt.Errorf("%s: %w", p, err)
		}
		if found {
			return word, p, nil
		}
	}
	return nil, Place{}, nil
}

// Given reports whether the command has one of the knob's places.
func (d *Draft) Given(knob Knob) bool {
	return slices.ContainsFunc(d.Places(knob), func(p Place) bool { return p.Present(d) })
}

// Files lists the files of the draft itself: the one that has all arguments.
func (d *Draft) Files() []string {
	return slices.DeleteFunc([]string{d.all}, func(file string) bool { return file == "" })
}

// Has reports whether the command gives an argument.
func (d *Draft) Has(argument string) bool { return d.has([]string{argument}, "") }

// On reports whether a flag is on the command and is true.
func (d *Draft) On(flag string) (bool, error) {
	truth, found, err := d.argument([]string{flag}, "", true)
	return found && SameWord(truth, true), err
}

// HasOverride reports whether the command line has a word key=value, or the framework's form of
// it.
func (d *Draft) HasOverride(key string) bool {
	_, found := d.grammar.Override(d.Argv, key)
	return found
}

// HasWord reports whether an argument is among the command's own words.
func (d *Draft) HasWord(argument string) bool { return d.grammar.Has(d.Argv, argument) }

// Argument is the text of an argument; one without a value counts as absent.
func (d *Draft) Argument(name string) (string, bool) {
	word, found, err := d.argument([]string{name}, "", false)
	if !found || err != nil || word == nil {
		return "", false
	}
	if table, is := word.(map[string]any); is { // of a file of arguments: as JSON that the command could have
		text, err := json.Marshal(table)
		return string(text), err == nil
	}
	return fmt.Sprint(word), true
}

// abbreviable lists the recipe's long arguments, if the framework accepts abbreviations.
func (r Recipe) abbreviable() []string {
	if !r.Grammar.Abbreviations {
		return nil
	}
	names := map[string]bool{}
	for _, knob := range r.Knobs {
		for _, p := range knob.Places {
			for _, name := range p.Arguments() {
				names[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Variable is an environment variable in the draft.
func (d *Draft) Variable(name string) (string, bool) {
	if v, changed := d.Env[name]; changed {
		return v, true
	}
	v, set := d.Original.Env[name]
	return v, set
}

// SetVariable sets an environment variable.
func (d *Draft) SetVariable(name, value string) {
	if old, set := d.Original.Env[name]; set && old == value {
		delete(d.Env, name)
		return
	}
	d.Env[name] = value
}

// Add adds a new file, which via names.
func (d *Draft) Add(file string, text []byte, via Via) error {
	d.files[file], d.named[file], d.alone[file] = text, via, true
	return via.point(d, file, file)
}

// Loaded reports whether a file's text is known.
func (d *Draft) Loaded(file string) bool {
	_, err := d.text(file)
	return err == nil
}

// text is a file's text in the draft.
func (d *Draft) text(file string) ([]byte, error) {
	if text, changed := d.files[file]; changed {
		return text, nil
	}
	if inline(file) {
		return []byte(file), nil
	}
	text, loaded := d.Original.Files[file]
	if !loaded {
		return nil, fmt.Errorf("there is no %s", file)
	}
	return text, nil
}

// structured is the text of a file, and the format of its values.
func (d *Draft) structured(file string) (edit.Format, []byte, error) {
	text, err := d.text(file)
	if err != nil {
		return "", nil, err
	}
	format, known := edit.FormatOf(file, text)
	if !known {
		return "", nil, fmt.Errorf("gpurun reads JSON, YAML and TOML, and does not know the format of %s", Shown(file))
	}
	return format, text, nil
}

// Value reads one value of a file.
func (d *Draft) Value(file, at string) (any, bool, error) {
	format, text, err := d.structured(file)
	if err != nil {
		return nil, false, err
	}
	value, found, err := edit.Get(format, text, at)
	if err != nil {
		return nil, false, fmt.Errorf("read %s: %w", Shown(file), err)
	}
	return value, found, nil
}

// setValue changes one value of a file.
func (d *Draft) setValue(file, at string, value any) error {
	format, text, err := d.structured(file)
	if err != nil {
		return err
	}
	next, err := edit.Set(format, text, at, value)
	if err != nil {
		return fmt.Errorf("change %s: %w", Shown(file), err)
	}
	d.files[file] = next
	return nil
}

// A Command is the start of a job as the user wrote it. It is never changed in place.
type Command struct {
	// Argv is the script (or module, or program) and its arguments, without the
	// interpreter and its -m.
	Argv []string
	// Env is the whole environment that the job sees.
	Env map[string]string
	// Files are the configuration files that the command or the knobs name, by path as written;
	// FilesNamed lists them.
	Files map[string][]byte
	// Script is the script's source, for detection; nil if there is none.
	Script []byte
	// Modules are the local modules that the script imports, directly or through others; nil if
	// they are not known.
	Modules []Source
	// Code is the result of the reader of scripts for the script and its modules.
	Code ScriptCode
	// Parser has the arguments that the code of the job, and of its framework, defines; nil if it
	// is not known.
	Parser *Parser
	// Calls are arguments for which the process uses other values than its source.
	Calls []strategy.Call
	// Closed: nothing may be changed inside the job's process.
	Closed bool
	// Devices is the number of devices that a job of one process sees, over which its framework
	// may spread each batch; 0 for a job of ranks, each of which has one.
	Devices int
	// Packages are the versions of the Python packages that the job's interpreter has, by their
	// names in lower case; nil if they are not known.
	Packages map[string]string
}

// Sources are the texts of the script and of its modules; nil if it has none.
func (c Command) Sources() [][]byte {
	if c.Script == nil {
		return nil
	}
	texts := [][]byte{c.Script}
	for _, m := range c.Modules {
		texts = append(texts, m.Text)
	}
	return texts
}

// A Source is a Python file.
type Source struct {
	Path string
	Text []byte
}

// A Topology describes the processes that share the work.
type Topology struct {
	Ranks int
	// Plain: the job is one process that may start ranks itself, so their number is not known.
	Plain bool
	// DataParallel is the number of ranks that see different samples; 0: Ranks.
	DataParallel int
	// NVMePath is the folder for offload to NVMe; empty: none.
	NVMePath string
}

// Sharing is the number of ranks that see different samples, at least 1.
func (t Topology) Sharing() int {
	if t.DataParallel > 0 {
		return t.DataParallel
	}
	return max(t.Ranks, 1)
}
