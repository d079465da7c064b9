package job

import (
	"errors"
	"maps"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/environ"
	"github.com/gpurun/gpurun/launcher/errext"
)

// A command is what a job runs, out of what the user typed.
type command struct {
	kind Kind
	argv []string
	env  map[string]string
	// through is what precedes argv in the command of each rank.
	through Through
	// python and torchrun are the interpreter and the launcher as typed, options those
	// of the interpreter.
	python, torchrun string
	options          []string
	// line is what torchrun's flags said; nil where there was no torchrun.
	line *commandline.TorchrunCommand
	// nodes is what a launcher's words said of the nodes of the launch.
	nodes commandline.Nodes
	// inner are the variables that another launcher would have set, and launcher is
	// which one that is; zero for none.
	inner    map[string]string
	launcher commandline.RankStarter
	// typed are the words of a command that gpurun looks through: without the variables
	// in front and the wrappers of which it does the work itself.
	typed    []string
	used     []string // variables in the line
	warnings []string
}

// Words that the user typed, and what of the outside world their meaning rests on.
type words struct {
	typed    []string
	assigned environ.Vars // that stood before them
	// self: the words are one process that is run as it is.
	self bool
	// env are the job's own variables, and inherited gpurun's: PET_* of both count.
	env, inherited environ.Vars
	dir            string
	hook           Unwrap // takes other launchers off; it may be nil
}

// commandFrom splits a line as typed into a shell, with the values of its variables.
// w has no words yet. The error has a hint.
func commandFrom(line string, w words, lookup func(string) (string, bool)) (*command, error) {
	split, used, err := commandline.Expand(line, lookup)
	if err != nil {
		return nil, withHint(err)
	}
	w.assigned, w.typed = commandline.Assignments(split)
	c, err := w.command()
	if c != nil {
		c.used = used
	}
	return c, err
}

// command takes words apart into what gpurun does itself: leading variables,
// torchrun, the interpreter. The error has a hint.
func (w words) command() (*command, error) {
	if len(w.typed) == 0 {
		return nil, errext.Errorf("", "the command is empty")
	}
	if w.self {
		return &command{kind: Program, argv: w.typed, env: w.assigned}, nil
	}
	assigned, seen := w.assigned, commandline.Known.SeeThrough(w.typed)
	if len(seen.Env) > 0 {
		assigned = assigned.With(seen.Env)
	}
	all := w.env.With(assigned)
	c, err := innerCommand(seen.Typed, seen.Inner, all, w.dir, w.hook)
	switch {
	case c != nil || err != nil:
	case seen.Direct:
		c = &command{kind: Script, argv: seen.Inner}
	default:
		c, err = unwrap(seen.Inner, w.inherited.With(all))
	}
	if err != nil {
		return nil, err
	}
	c.env, c.warnings = assigned, seen.Warnings
	c.behind(seen)
	if len(c.through.Wrappers)+len(c.through.Options) > 0 {
		c.typed = seen.Typed
	}
	for name, value := range c.inner {
		if _, set := all[name]; set {
			continue // what the user says is stronger
		}
		if c.env == nil {
			c.env = map[string]string{}
		}
		c.env[name] = value
	}
	return c, nil
}

// unwrap takes torchrun and the interpreter off a command, and refuses other
// launchers. env holds variables that stood before it.
func unwrap(words []string, env map[string]string) (*command, error) {
	c, err := unwrapTorchrun(words, env)
	if c != nil || err != nil {
		return c, err
	}
	if err := refuseInner(Program, words); err != nil {
		return nil, err
	}
	if commandline.IsPython(words[0]) {
		return unwrapPython(words)
	}
	return &command{kind: Program, argv: words}, nil
}

// unwrapTorchrun takes torchrun off, in either of its names; nil where it is not
// in front.
func unwrapTorchrun(words []string, env map[string]string) (*command, error) {
	found, _ := commandline.Known.Find(words)
	is, legacy := found.Torchrun()
	if !is {
		return nil, nil
	}
	c := &command{python: found.Python}
	if c.python == "" {
		c.torchrun = words[0]
	}
	line, err := readTorchrun(found.Args, env, legacy)
	if err != nil {
		return nil, err
	}
	if line.Python != "" {
		return nil, errext.Errorf("set job.python", "torchrun has no flag --python")
	}
	c.kind, c.argv, c.line, c.nodes = line.Kind, line.Command, line, line.Nodes
	return c, refuseInner(c.kind, c.argv)
}

// refuseInner refuses a launcher that gpurun would start once a rank.
func refuseInner(kind Kind, argv []string) error {
	return refused(commandline.Known.StartsRanks(kind, argv))
}

// refused is the error for a launcher that would start once a rank; nil for none.
func refused(name string) error {
	if name == "" {
		return nil
	}
	return errext.Errorf(`set launch.ranks = "self", or give the command that it runs on each rank`,
		"%s starts its own ranks: it would be started once for each rank", name)
}

// unwrapPython takes the interpreter off: gpurun starts it itself, always with
// -u. With options that change what it runs it stays, and the command is a program.
func unwrapPython(words []string) (*command, error) {
	p, err := commandline.ReadPython(words)
	switch {
	case err != nil || p.Kind == Program || !p.Clear:
		return &command{kind: Program, argv: words}, nil
	case len(p.Argv) == 0:
		return nil, errext.Errorf("name the script", "%s would wait for input", words[0])
	}
	return &command{kind: p.Kind, argv: p.Argv, python: words[0], options: p.Options}, nil
}

// An Unwrap takes a framework's launcher off a command, and the wrappers in front of
// it; false where it knows none in it. env are the variables that precede it and those of the job,
// dir is the working directory.
type Unwrap func(words []string, env map[string]string, dir string) (commandline.Inner, bool, error)

// innerCommand asks unwrap; nil where it knows no launcher in the words, of which
// inside are those behind wrappers.
func innerCommand(words, inside []string, env map[string]string, dir string, unwrap Unwrap) (*command, error) {
	if unwrap == nil {
		return nil, nil
	}
	inner, known, err := unwrap(words, env, dir)
	if err != nil || !known {
		return nil, err
	}
	c := &command{kind: inner.Kind, argv: inner.Argv, inner: maps.Clone(inner.Env), launcher: inner.RankStarter, nodes: inner.Nodes}
	if commandline.IsPython(inside[0]) {
		c.python = inside[0]
	}
	if inner.Ranks != "" {
		c.line = commandline.LaunchOf(inner.Ranks, "the launcher's number of ranks")
	}
	return c, refuseInner(c.kind, c.argv)
}

// ErrHelp: the command line asks for help.
var ErrHelp = commandline.ErrHelp

// readTorchrun reads torchrun's command line, with gpurun's own flags among
// torchrun's. legacy is torch.distributed.launch. Errors have hints; ErrHelp asks for help.
func readTorchrun(args []string, env environ.Vars, legacy bool) (*commandline.TorchrunCommand, error) {
	line, err := commandline.ReadTorchrun(args, env, legacy)
	if err != nil {
		return nil, withHint(err)
	}
	return line, nil
}

// withHint adds what to do about a word of a command line.
func withHint(err error) error {
	var word *commandline.OptionProblem
	if !errors.As(err, &word) {
		return err
	}
	switch word.Fault {
	case commandline.Ambiguous:
		return errext.WithHint(err, "write it in full")
	case commandline.Unknown:
		if meant := Nearest(word.Option, word.Options); meant != "" {
			return errext.WithHint(err, "did you mean "+meant+"?")
		}
		return errext.WithHint(err, "the script's own arguments go after the script")
	}
	return err
}

// launchOf is how the ranks are started by torchrun's flags; what torchrun has no flag
// for keeps its default. Relative paths count from dir.
func launchOf(line *commandline.TorchrunCommand, dir string) LaunchSettings {
	l := defaults().Launch
	l.RankOptions, l.Auto = line.RankOptions, AutoDevices
	l.LogDir = under(dir, l.LogDir)
	return l
}

// many bounds numbers that have no bound of their own.
const many = 1 << 30
