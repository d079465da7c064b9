package format

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/recipes/edit"
	"github.com/gpurun/gpurun/strategy"
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

func (a argument) Present(d *Draft) bool { return d.has(a.names, a.no) }

func (a argument) Read(d *Draft) (any, bool, error) { return d.argument(a.names, a.no, a.flag) }

func (a argument) Write(d *Draft, word any, absence bool) error {
	return d.setArgument(a.names, a.no, word, absence)
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

// spelling is the name by which the command gives an argument. If there are several, it is the
// last, which counts; without any, it is the argument's first name.
func (d *Draft) spelling(names []string) string {
	best, at := names[0], d.grammar.At(d.Argv, names[0])
	for _, name := range names[1:] {
		if i := d.grammar.At(d.Argv, name); i > at {
			best, at = name, i
		}
	}
	if at < 0 {
		for _, name := range names {
			if d.Lacks(name) == "" {
				return name
			}
		}
	}
	return best
}

// has reports whether an argument, or its opposite, is present.
func (d *Draft) has(names []string, no string) bool {
	if d.all != "" {
		_, found, err := d.argument(names, no, false)
		return found && err == nil
	}
	return d.grammar.Has(d.Argv, d.spelling(names)) || d.grammar.Has(d.Argv, no)
}

// argument returns the value of an argument or of a flag; of several names, the one that counts.
func (d *Draft) argument(names []string, no string, flag bool) (word any, found bool, err error) {
	switch key := identifier(names[0]); {
	case d.all != "" && d.overrides(key):
		word, found = d.grammar.Override(d.Argv, key)
	case d.all != "":
		word, found, err = d.Value(d.all, key)
		found = found && word != nil
	case flag:
		return d.grammar.Flag(d.Argv, d.spelling(names), no)
	default:
		word, found, err = d.grammar.Get(d.Argv, d.spelling(names))
	}
	return word, found, err
}

// overrides reports whether a word overrides a key of the file that has all arguments.
func (d *Draft) overrides(key string) bool { return d.Recipe.Grammar.Overrides && d.HasOverride(key) }

// setArgument changes the value that argument reads. Absence is the job's value without a flag.
func (d *Draft) setArgument(names []string, no string, word any, absence bool) (err error) {
	truth, flag := word.(bool)
	switch key := identifier(names[0]); {
	case d.all != "" && d.overrides(key):
		d.Argv = d.grammar.SetOverride(d.Argv, "", key, fmt.Sprint(word))
	case d.all != "":
		return d.setValue(d.all, key, word)
	case flag:
		d.Argv, err = d.grammar.SetFlag(d.Argv, d.spelling(names), no, truth, absence)
	default:
		d.Argv = d.grammar.Set(d.Argv, d.spelling(names), fmt.Sprint(word))
	}
	return err
}

// removeArgument removes an argument that has a value.
func (d *Draft) removeArgument(name string) error {
	if d.all == "" {
		d.Argv = d.grammar.Remove(d.Argv, name)
		return nil
	}
	word, found, err := d.argument([]string{name}, "", false)
	if err != nil || !found || word == false {
		return err
	}
	return fmt.Errorf("%s cannot be taken out of %s", identifier(name), d.all)
}

// Resume adds arguments to the command of a change whose files are in dir: in place of those that the user gave, or
// in the copy of the file that has all arguments.
func (d *Draft) Resume(change *strategy.Command, options []WordOption, dir string) error {
	if d.all != "" {
		return d.resumeInFile(change, options, dir)
	}
	before, grammar := change.Argv, d.grammar
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

func (d *Draft) resumeInFile(change *strategy.Command, options []WordOption, dir string) (err error) {
	name, text := path.Join("config", path.Base(d.all)), d.Original.Files[d.all]
	for changed, newer := range change.Files {
		if path.Join(dir, changed) == change.Argv[1] {
			name, text = changed, newer
		}
	}
	format, _ := edit.FormatOf(d.all, text)
	next := text
	for _, o := range options {
		value := any(o.Value)
		if o.Bare {
			value = true
		}
		if next, err = edit.Set(format, next, identifier(o.Name), value); err != nil {
			return fmt.Errorf("change %s: %w", d.all, err)
		}
	}
	change.Files[name] = next
	change.Argv = []string{change.Argv[0], path.Join(dir, name)}
	change.Diff += string(Unified(d.all, text, name, next))
	return nil
}
