package commandline

import (
	"strings"
)

// An Option is one of a program's options.
type Option struct {
	// Name is the long name without the leading dashes. In it, an underscore is the same as a dash. It is
	// empty for an option that has only a letter.
	Name string
	// Aliases are further long names.
	Aliases []string
	// Short is the option's letter, 0 for none.
	Short byte
	// Bare marks an option without a value. Its value is "1" if it is given.
	Bare bool
	// Negated marks a bare option that has a form with the prefix "no-", for the value "0".
	Negated bool
	// Optional marks a bare option that may have a value in the same word.
	Optional bool
	// Whole marks an option whose name must not be abbreviated.
	Whole bool
	// Last marks an option that ends the options, such as -m and -c.
	Last bool
	// Variable is the environment variable with the option's default, empty for none.
	Variable string
	Means    Meaning
	// Hint is the hint of the error for a refused option.
	Hint string
	// Value is the placeholder for the value in a verb's help. About describes the option in one or more
	// lines. Help does not list options without About.
	Value, About string
	// field returns where to store the value of an option: a *bool, a *string or a *Streams.
	field func(*TorchrunCommand) any
}

// A Meaning is the meaning of an option to gpurun.
type Meaning int

// The meanings.
const (
	// Specific: only the launcher's own code reads it, if it matters.
	Specific Meaning = iota
	// Idle: gpurun ignores it without harm.
	Idle
	// Ranks: the number of ranks per node.
	Ranks
	// NodeCount: the number of nodes.
	NodeCount
	// AsModule and AsProgram: the first word of the rest is a module, or a program.
	AsModule
	AsProgram
	// HandedOn: the launcher passes it on to the launcher that starts its module.
	HandedOn
	// Refused: gpurun cannot honour it.
	Refused
	// Help: it requests help, and nothing is started.
	Help
)

// names yields all long names of an option, with the value of a bare option under each name.
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

// String returns the option as a user writes it.
func (o *Option) String() string {
	if o.Name == "" {
		return "-" + string(o.Short)
	}
	return "--" + o.Name
}

// folded returns a long name with dashes for underscores.
func folded(name string) string { return strings.ReplaceAll(name, "_", "-") }

// valued and bare make options from names alone, with and without a value.
func valued(names ...string) []Option { return optionsOf(names, Option{}) }
func bare(names ...string) []Option   { return optionsOf(names, Option{Bare: true}) }

// meaning sets the meaning of options.
func meaning(m Meaning, options []Option) []Option {
	for i := range options {
		options[i].Means = m
	}
	return options
}

// optionsOf makes an option like the given one for each name. A name of one character is a letter.
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

// getopt returns the grammar of a program that uses getopt_long, given the names of its options without and
// with a value.
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
	// Kind is Module or Script. It is Program for a line of code, for standard input, and for an option such
	// as --version.
	Kind CommandKind
	// Argv is the module or script with its arguments, empty for none.
	Argv []string
	// Plain: no option but -u is given.
	Plain bool
	// Clear: the other options change neither what is run nor where Python finds it.
	Clear bool
	// Options are the options as written, without -u and -m.
	Options []string
}

// ReadPython reads an interpreter's command line, whose first word is the interpreter. The error is an
// *OptionProblem.
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
