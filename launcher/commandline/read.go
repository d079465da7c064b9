package commandline

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/lazy"
)

// An OptionGrammar defines how a program reads its command line.
type OptionGrammar struct {
	Options []Option
	// Abbreviations: a long name may be abbreviated if it stays unique, as in Python's argparse.
	Abbreviations bool
	// Remainder: the first word that is no option ends the options. A "--" right after that word is dropped,
	// as by argparse's REMAINDER.
	Remainder bool
	// Mixed: options may appear anywhere among other words, up to a "--". Unknown words are kept unchanged.
	Mixed bool
}

// A Given is one given option.
type Given struct {
	*Option
	// Source is the user's spelling: "--tee", "-t", "PET_TEE".
	Source string
	Value  string
	// At is the index of the option's word, -1 for a variable. Attached: the value is in the same word, else
	// it is the next word.
	At       int
	Attached bool
}

// A Reading is a parsed command line.
type Reading struct {
	Given []Given // in the order of the command line
	// Rest are the other words. From is their first index, if they follow the options.
	Rest []string
	From int
	// Beyond are the words after a "--" in a mixed command line.
	Beyond []string
}

// Last returns the last option of that name, the one that counts.
func (r Reading) Last(name string) (Given, bool) {
	for _, g := range slices.Backward(r.Given) {
		if g.Name == name {
			return g, true
		}
	}
	return Given{}, false
}

// An OptionFault is a kind of mistake on a command line.
type OptionFault int

// The faults.
const (
	Unknown   OptionFault = iota // there is no such option
	Ambiguous                    // the abbreviation fits several options
	NoValue                      // it needs a value and has none
	HasValue                     // it takes no value and has one
)

// An OptionProblem is the error for a word of a command line that cannot be read.
type OptionProblem struct {
	Fault OptionFault
	// At is the index of the word, and Option the option as written.
	At     int
	Option string
	// Options are all options; for an ambiguous one, the options that fit.
	Options []string
}

func (p *OptionProblem) Error() string {
	switch p.Fault {
	case Ambiguous:
		return fmt.Sprintf("%s is ambiguous: it could be %s", p.Option, strings.Join(p.Options, ", "))
	case NoValue:
		return p.Option + " needs a value"
	case HasValue:
		return p.Option + " takes no value"
	}
	return "unknown flag " + p.Option
}

// negative matches a word that argparse reads as a number, not as an option.
var negative = lazy.Regexp(`^-\d+$|^-\d*\.\d+$`)

// Read reads the options of a command line. The error is an *OptionProblem.
func (g *OptionGrammar) Read(words []string) (Reading, error) {
	p := parser{OptionGrammar: g, words: words}
	for p.at < len(words) && !p.ended {
		word := words[p.at]
		if word == "--" {
			if g.Mixed {
				return Reading{Given: p.found, Rest: p.rest, From: len(words), Beyond: words[p.at+1:]}, nil
			}
			return Reading{Given: p.found, Rest: words[p.at+1:], From: p.at + 1}, nil
		}
		other, err := p.option(word)
		switch {
		case err != nil:
			return Reading{}, err
		case other && g.Mixed:
			p.rest = append(p.rest, word)
			p.at++
		case other:
			p.ended = true
		}
	}
	r := Reading{Given: p.found, Rest: p.rest, From: p.at}
	if !g.Mixed {
		if r.Rest = words[p.at:]; g.Remainder && len(r.Rest) > 1 && r.Rest[1] == "--" {
			r.Rest = slices.Delete(slices.Clone(r.Rest), 1, 2)
		}
	}
	return r, nil
}

// A parser is the state while a command line is parsed.
type parser struct {
	*OptionGrammar
	words []string
	at    int
	found []Given
	rest  []string
	ended bool
}

// option reads the option at p.at with its value, or reports that the word is no option.
func (p *parser) option(word string) (other bool, err error) {
	if !strings.HasPrefix(word, "-") || word == "-" {
		return true, nil
	}
	if strings.HasPrefix(word, "--") {
		name, value, attached := strings.Cut(word[2:], "=")
		o, err := p.long(name)
		if err != nil {
			return false, err
		}
		if o != nil {
			return false, p.take(Given{Option: o, Source: "--" + o.Name, Value: value, At: p.at, Attached: attached})
		}
	} else if p.short(word[1]) != nil {
		return false, p.cluster(word[1:])
	}
	if p.Mixed || negative().MatchString(word) || strings.Contains(word, " ") {
		return true, nil
	}
	return false, p.unknown(word)
}

// long finds an option by its name or, if allowed, by a unique abbreviation.
func (p *parser) long(name string) (found *Option, err error) {
	name = folded(name)
	var fits []string
	for i := range p.Options {
		o := &p.Options[i]
		for whole := range o.names {
			if whole = folded(whole); whole == name {
				return o, nil
			}
			if name != "" && p.Abbreviations && !o.Whole && strings.HasPrefix(whole, name) {
				fits, found = append(fits, "--"+whole), o
			}
		}
	}
	if len(fits) > 1 {
		slices.Sort(fits)
		return nil, &OptionProblem{Fault: Ambiguous, At: p.at, Option: "--" + name, Options: fits}
	}
	return found, nil
}

// short finds an option by its letter.
func (g *OptionGrammar) short(letter byte) *Option {
	for i := range g.Options {
		if g.Options[i].Short == letter {
			return &g.Options[i]
		}
	}
	return nil
}

// cluster reads letters after one dash: -r3, -r=3, -r 3, -m, -mr3.
func (p *parser) cluster(letters string) error {
	at := p.at
	for {
		o := p.short(letters[0])
		if o == nil {
			p.at = at
			return p.unknown("-" + letters)
		}
		given, rest := Given{Option: o, Source: "-" + letters[:1], At: at}, letters[1:]
		if !o.Bare || o.Optional && rest != "" {
			given.Value, given.Attached = strings.TrimPrefix(rest, "="), rest != ""
			rest = ""
		}
		p.at = at
		if err := p.take(given); err != nil || rest == "" {
			return err
		}
		letters = rest
	}
}

// take records an option, with the next word as its value if it needs one.
func (p *parser) take(given Given) error {
	p.at++
	switch {
	case given.Bare && given.Attached && given.Optional:
	case given.Bare && given.Attached:
		return &OptionProblem{Fault: HasValue, At: given.At, Option: given.Source}
	case given.Bare:
		given.Value = "1"
	case !given.Attached && (p.at == len(p.words) || optionLike(p.words[p.at])):
		return &OptionProblem{Fault: NoValue, At: given.At, Option: given.Source}
	case !given.Attached:
		given.Value = p.words[p.at]
		p.at++
	}
	p.found = append(p.found, given)
	p.ended = given.Last
	return nil
}

// optionLike reports whether argparse would read a word as an option instead of a value.
func optionLike(word string) bool {
	return len(word) > 1 && word[0] == '-' && !negative().MatchString(word) && !strings.Contains(word, " ")
}

// unknown returns the error for an option that the grammar does not have.
func (p *parser) unknown(word string) error {
	name, _, _ := strings.Cut(word, "=")
	return &OptionProblem{Fault: Unknown, At: p.at, Option: name, Options: p.Names()}
}

// Names returns the long names of all options, as users write them.
func (g *OptionGrammar) Names() []string {
	var all []string
	for i := range g.Options {
		for name := range g.Options[i].names {
			all = append(all, "--"+name)
		}
	}
	return all
}

// fromVariables returns the options that the environment sets and the command line does not. An empty
// variable counts as unset.
func (g *OptionGrammar) fromVariables(found []Given, env map[string]string) []Given {
	var more []Given
	for i := range g.Options {
		o := &g.Options[i]
		named := slices.ContainsFunc(found, func(g Given) bool { return g.Option == o })
		if value := env[o.Variable]; o.Variable != "" && !named && value != "" {
			more = append(more, Given{Option: o, Source: o.Variable, Value: value, At: -1, Attached: true})
		}
	}
	return more
}

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

// names yields all long names of an option.
func (o *Option) names(yield func(name string) bool) {
	if o.Name != "" && !yield(o.Name) {
		return
	}
	for _, name := range o.Aliases {
		if !yield(name) {
			return
		}
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
	bare("b", "B", "d", "E", "h", "i", "I", "O", "P", "q", "s", "S", "u", "v", "V", "x", "?", "help", "version",
		"help-env", "help-xoptions", "help-all"),
	Option{Short: 'm', Last: true}, Option{Short: 'c', Last: true}, Option{Short: 'X'}, Option{Short: 'W'},
	Option{Name: "check-hash-based-pycs"},
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
			p.Clear = p.Clear && (g.Name != "" || strings.IndexByte("bBdOPqsvXW", g.Short) >= 0) &&
				!strings.HasPrefix(g.Name, "help") && g.Name != "version"
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
