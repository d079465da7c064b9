package commandline

import (
	"strings"
)

// An Option is one of a program's options.
type Option struct {
	// Name is the long name without the dashes in front of it; inside it an
	// underscore is the same as a dash. It is empty for an option that has a letter only.
	Name string
	// Aliases are further long names.
	Aliases []string
	// Short is the option's letter, 0 for none.
	Short byte
	// Bare marks an option without a value: where it is given its value is "1".
	Bare bool
	// Negated marks a bare option whose name with "no-" in front means "0".
	Negated bool
	// Optional marks a bare option that may have a value in the same word.
	Optional bool
	// More is how many further words it takes behind its value.
	More int
	// Whole marks an option whose name may not be cut short.
	Whole bool
	// Last marks an option after whose value no further option is read: -m, -c.
	Last bool
	// Variable is the environment variable with the option's default, empty for none.
	Variable string
	Means    Meaning
	// Hint is what to do without a refused option.
	Hint string
	// Value stands for the value in the help of a verb, and About says what the option does, in
	// one or more lines. Help lists no option without About.
	Value, About string
	// field is where the value of an option of gpurun's goes, a *bool or a *string.
	field func(*TorchrunCommand) any
}

// A Meaning is what an option is to gpurun.
type Meaning int

// The meanings.
const (
	// Specific: the launcher's own rules know what it is, if it matters at all.
	Specific Meaning = iota
	// Idle: gpurun does not do what it asks for, and need not.
	Idle
	// Ranks: how many ranks a node has.
	Ranks
	// NodeCount: how many nodes the launch has.
	NodeCount
	// AsModule and AsProgram: what is to be started is a module, or a program.
	AsModule
	AsProgram
	// HandedOn: the launcher hands it on to the one that it starts its module by.
	HandedOn
	// Refused: gpurun cannot honour it.
	Refused
	// Help: it asks for help, and for nothing to be started.
	Help
)

// names are all long names of an option, with the value that a bare one has under
// each.
func (o *Option) names(yield func(name, value string) bool) {
	if o.Name != "" && !yield(o.Name, "1") {
		return
	}
	for _, name := range o.Aliases {
		if !yield(name, "1") {
			return
		}
	}
	if o.Negated {
		yield("no-"+o.Name, "0")
	}
}

// String is the option as it is written.
func (o *Option) String() string {
	if o.Name == "" {
		return "-" + string(o.Short)
	}
	return "--" + o.Name
}

// folded is a long name with the two spellings made one.
func folded(name string) string { return strings.ReplaceAll(name, "_", "-") }

// valued and bare make options of names that say all about them.
func valued(names ...string) []Option { return optionsOf(names, Option{}) }
func bare(names ...string) []Option   { return optionsOf(names, Option{Bare: true}) }

// meaning gives options a meaning.
func meaning(m Meaning, options []Option) []Option {
	for i := range options {
		options[i].Means = m
	}
	return options
}

// optionsOf gives each name the rest of an option. A name of one character is a letter.
func optionsOf(names []string, like Option) []Option {
	all := make([]Option, len(names))
	for i, name := range names {
		all[i] = like
		if len(name) == 1 {
			all[i].Short = name[0]
		} else {
			all[i].Name = name
		}
	}
	return all
}

// getopt is the command line of a program that reads it as getopt_long does, from
// the names of its options: those without a value, and those with one.
func getopt(without, with string) OptionGrammar {
	return OptionGrammar{Options: append(bare(strings.Fields(without)...), valued(strings.Fields(with)...)...)}
}

// pythonGrammar is the interpreter's own command line (Modules/main.c).
var pythonGrammar = OptionGrammar{Options: append(
	bare("b", "B", "d", "E", "h", "i", "I", "O", "P", "q", "s", "S", "u", "v", "V", "x", "?", "help", "version", "help-env", "help-xoptions", "help-all"),
	Option{Short: 'm', Last: true}, Option{Short: 'c', Last: true}, Option{Short: 'X'}, Option{Short: 'W'}, Option{Name: "check-hash-based-pycs"},
)}

// A Python is the command line of an interpreter.
type Python struct {
	// Kind is Module or Script; Program for a line of code, for standard input, and
	// for a question about the interpreter itself.
	Kind CommandKind
	// Argv is the module or script with its arguments, empty where there is none.
	Argv []string
	// Plain: no other option is given than -u.
	Plain bool
	// Clear: the other options change neither what is run, nor where it is found.
	Clear bool
	// Options are those but -u and -m, as they are written.
	Options []string
}

// ReadPython reads an interpreter's command line, from the interpreter on. The
// error is a *Problem.
func ReadPython(words []string) (Python, error) {
	read, err := pythonGrammar.Read(words[1:])
	if err != nil {
		return Python{}, err
	}
	p := Python{Kind: Script, Argv: read.Rest, Plain: true, Clear: true}
	for _, g := range read.Given {
		switch g.Short {
		case 'u':
		case 'm':
			p.Kind, p.Argv = Module, append([]string{g.Value}, read.Rest...)
		case 'c':
			p.Kind, p.Plain = Program, false
		default:
			p.Plain = false
			p.Clear = p.Clear && (g.Name != "" || strings.IndexByte("bBdOPqsvXW", g.Short) >= 0) && !strings.HasPrefix(g.Name, "help") && g.Name != "version"
			p.Options = append(p.Options, g.String())
			if !g.Bare {
				p.Options = append(p.Options, g.Value)
			}
		}
	}
	if p.Kind == Script && len(p.Argv) > 0 && strings.HasPrefix(p.Argv[0], "-") {
		p.Kind = Program
	}
	return p, nil
}
