package format

import (
	"slices"
	"strings"
)

// argument is { arg = "--batch-size" }: an argument, under one of its names.
type argument struct {
	onCommand
	names spellings // the first is the one that is appended
	no    string    // what says false: "--no-pin-memory"
	flag  bool      // it holds a truth value
}

// Argument is the place of an argument that is no flag.
func Argument(name string) Place { return Place{Kind: argument{names: []string{name}}} }

// spellings are names of one argument.
type spellings []string

var argumentSpecs = []spec[argument]{
	{"arg", "an argument, `\"--x\"`, or a list of its names of which the first is appended", func(a *argument) any { return &a.names }, ""},
	{"no", "the opposite of a flag, `\"--no-x\"`", func(a *argument) any { return &a.no }, ""},
}

func (a *argument) complete(n *table, p *Place) {
	a.flag = p.flag()
	for i, name := range a.names {
		switch {
		case name == "" || strings.HasPrefix(name, "-"): // what is empty is said already
		case i == 0:
			n.Report(Problem{Key: n.Path("arg"), Message: "an argument starts with a dash", Suggest: "--" + name})
		default:
			n.fault("arg", "%q is no argument: it does not start with a dash", name)
		}
	}
	for value, words := range p.Words {
		if a.flag && slices.Contains(words, any(false)) {
			p.Implied = value
		}
	}
}

func (a argument) String() string { return "argument " + a.names[0] }

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

// spellings are its names, and that of its opposite.
func (a argument) spellings() []string {
	if a.no == "" {
		return a.names
	}
	return append(slices.Clone(a.names), a.no)
}

// flagged is a kind that holds a truth value where it is told that it does.
type flagged interface{ asFlag() Kind }

func (a argument) asFlag() Kind {
	a.flag = true
	return a
}
