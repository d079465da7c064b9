package format

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/model"
	"github.com/gpurun/gpurun/recipes/edit"
)

// argument is { arg = "--batch-size" }: an argument, under one of its names.
type argument struct {
	onCommand
	names spellings // the first is used to append it
	no    string    // the opposite: "--no-pin-memory"
	flag  bool      // it holds a truth value
}

// Argument is the place of an argument that is not a flag.
func Argument(name string) Place { return Place{PlaceKind: argument{names: []string{name}}} }

// spellings are names of one argument.
type spellings []string

// newArgument checks the names of an argument.
func newArgument(n *keyTable, names spellings, no string, p *Place) argument {
	for i, name := range names {
		switch {
		case name == "" || strings.HasPrefix(name, "-"): // an empty name was already reported
		case i == 0:
			n.Report(edit.Problem{Key: n.Path("arg"), Message: "an argument starts with a dash", Suggest: "--" + name})
		default:
			n.fault("arg", "%q is not an argument: it does not start with a dash", name)
		}
	}
	a := argument{names: names, no: no, flag: p.flag()}
	for value, words := range p.Words {
		if a.flag && slices.Contains(words, any(false)) {
			p.Implied = value
		}
	}
	return a
}

func (a argument) String() string { return "argument " + a.names[0] }

// needs names all spellings.
func (a argument) needs() string {
	last := len(a.names) - 1
	if last == 0 {
		return a.String()
	}
	return "argument " + strings.Join(a.names[:last], ", ") + " or " + a.names[last]
}

func (a argument) Present(d *Draft) bool { return d.args.has(a.names, a.no) }

func (a argument) Read(d *Draft) (any, bool, error) {
	if a.flag {
		return d.args.flag(a.names, a.no)
	}
	return d.args.get(a.names)
}

func (a argument) Write(d *Draft, word any, absence bool) error {
	if truth, isBool := word.(bool); isBool {
		return d.args.setFlag(a.names, a.no, truth, absence)
	}
	return d.args.set(a.names, word)
}

func (a argument) Arguments() []string {
	return slices.DeleteFunc([]string{a.names[0], a.no}, func(name string) bool { return !startsWithDashes(name) })
}

// spellings returns its names, and that of its opposite.
func (a argument) spellings() []string {
	if a.no == "" {
		return a.names
	}
	return append(slices.Clone(a.names), a.no)
}

// flagged is a kind that can hold a truth value.
type flagged interface{ asFlag() PlaceKind }

func (a argument) asFlag() PlaceKind {
	a.flag = true
	return a
}

// arguments are the job's arguments: on the command line, or in one file that has them all by
// name.
type arguments interface {
	// has reports whether an argument, or its opposite, is present.
	has(names []string, no string) bool
	// get returns an argument's value; of several names, the one that counts.
	get(names []string) (word any, found bool, err error)
	// flag returns a truth value, or an error if the word is not one.
	flag(names []string, no string) (truth any, found bool, err error)
	set(names []string, word any) error
	setFlag(names []string, no string, on, absence bool) error
	// remove removes an argument that has a value.
	remove(name string) error
	// resume adds arguments to the command of a change whose files are in dir.
	resume(change *model.Command, options []WordOption, dir string) error
	// file is the file with all arguments; empty if they are words.
	file() string
}

// ErrNoValue is the error for an argument without a value.
var ErrNoValue = errors.New("no value")

// noValue is ErrNoValue with the parser's message.
type noValue struct{ error }

func (e noValue) Is(target error) bool { return target == ErrNoValue }
func (e noValue) Unwrap() error        { return e.error }

// onLine are arguments on the command line.
type onLine struct{ d *Draft }

func (onLine) file() string { return "" }

// spelling is the name by which the command gives an argument. If there are several, it is the
// last, which counts; without any, it is the argument's first name.
func (a onLine) spelling(names []string) string {
	best, at := names[0], a.d.grammar.At(a.d.Argv, names[0])
	for _, name := range names[1:] {
		if i := a.d.grammar.At(a.d.Argv, name); i > at {
			best, at = name, i
		}
	}
	if at < 0 {
		for _, name := range names {
			if a.d.Lacks(name) == "" {
				return name
			}
		}
	}
	return best
}

func (a onLine) has(names []string, no string) bool {
	return a.d.grammar.Has(a.d.Argv, a.spelling(names)) || no != "" && a.d.grammar.Has(a.d.Argv, no)
}

func (a onLine) get(names []string) (any, bool, error) {
	word, found, err := a.d.grammar.Get(a.d.Argv, a.spelling(names))
	if err != nil {
		return word, found, noValue{err}
	}
	return word, found, nil
}

func (a onLine) flag(names []string, no string) (any, bool, error) {
	return a.d.grammar.Flag(a.d.Argv, a.spelling(names), no)
}

func (a onLine) set(names []string, word any) error {
	a.d.Argv = a.d.grammar.Set(a.d.Argv, a.spelling(names), fmt.Sprint(word))
	return nil
}

func (a onLine) setFlag(names []string, no string, on, absence bool) error {
	next, err := a.d.grammar.SetFlag(a.d.Argv, a.spelling(names), no, on, absence)
	a.d.Argv = next
	return err
}

func (a onLine) remove(name string) error {
	a.d.Argv = a.d.grammar.RemoveValued(a.d.Argv, name)
	return nil
}

// resume puts each argument in place of one that the user gave.
func (a onLine) resume(change *model.Command, options []WordOption, _ string) error {
	before, grammar := change.Argv, a.d.grammar
	argv := slices.Clone(before)
	for _, o := range options {
		switch {
		case o.Override:
			argv = grammar.SetOverride(argv, "", o.Name, o.Value)
		case !strings.HasPrefix(o.Name, "-"):
			argv = grammar.Append(argv, o.Name)
		case !o.Bare:
			argv = grammar.Set(argv, o.Name, o.Value)
		case !grammar.Has(argv, o.Name):
			argv = grammar.Append(argv, o.Name)
		}
	}
	change.Argv = argv
	change.Diff += string(Unified("command", optionLines(before), "resumed command", optionLines(argv)))
	return nil
}

// oneFile are arguments in a file that has them all, by their names without dashes.
type oneFile struct {
	d    *Draft
	path string
	// overrides: words name=value may follow the file, and are stronger.
	overrides bool
}

func (a oneFile) file() string { return a.path }

// keyOf is an argument's name in the file.
func (oneFile) keyOf(name string) string {
	return strings.ReplaceAll(strings.TrimLeft(name, "-"), "-", "_")
}

func (a oneFile) has(names []string, _ string) bool {
	word, found, err := a.value(names[0])
	return err == nil && found && word != nil
}

func (a oneFile) get(names []string) (any, bool, error) {
	word, found, err := a.value(names[0])
	return word, found && word != nil, err
}

func (a oneFile) flag(names []string, _ string) (any, bool, error) { return a.get(names) }

// value is an argument's value in the file, or in a word that overrides it.
func (a oneFile) value(name string) (any, bool, error) {
	if a.overrides {
		if value, found := a.d.grammar.Override(a.d.Argv, a.keyOf(name)); found {
			return value, true, nil
		}
	}
	return a.d.Value(a.path, a.keyOf(name))
}

// set changes the value that value reads.
func (a oneFile) set(names []string, word any) error {
	name := a.keyOf(names[0])
	if a.overrides {
		if _, found := a.d.grammar.Override(a.d.Argv, name); found {
			a.d.Argv = a.d.grammar.SetOverride(a.d.Argv, "", name, fmt.Sprint(word))
			return nil
		}
	}
	return a.d.setValue(a.path, name, word)
}

func (a oneFile) setFlag(names []string, _ string, on, _ bool) error { return a.set(names, on) }

func (a oneFile) remove(name string) error {
	word, found, err := a.value(name)
	if err != nil || !found || word == false {
		return err
	}
	return fmt.Errorf("%s cannot be taken out of %s", a.keyOf(name), a.path)
}

// resume puts the arguments into the file, or into the copy that the change already has of it.
func (a oneFile) resume(change *model.Command, options []WordOption, dir string) error {
	name, text := path.Join("config", path.Base(a.path)), a.d.Original.Files[a.path]
	for changed, newer := range change.Files {
		if path.Join(dir, changed) == change.Argv[1] {
			name, text = changed, newer
		}
	}
	format, _ := edit.FormatOf(a.path, text)
	next := text
	for _, o := range options {
		value := any(o.Value)
		if o.Bare {
			value = true
		}
		var err error
		if next, err = edit.Set(format, next, a.keyOf(o.Name), value); err != nil {
			return fmt.Errorf("change %s: %w", a.path, err)
		}
	}
	change.Files[name] = next
	change.Argv = []string{change.Argv[0], path.Join(dir, name)}
	change.Diff += string(Unified(a.path, text, name, next))
	return nil
}
