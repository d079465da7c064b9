package job

import (
	"errors"
	"maps"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
)

// A command is the command of a job, parsed from the typed words.
type command struct {
	kind Kind
	argv []string
	env  map[string]string
	// through precedes argv in the command of each rank.
	through Through
	// python and torchrun are the interpreter and the launcher as typed, options the options of the
	// interpreter.
	python, torchrun string
	options          []string
	// line has torchrun's flags; nil without torchrun.
	line *commandline.TorchrunCommand
	// nodes has what a launcher's words say about the nodes of the launch.
	nodes commandline.Nodes
	// inner are the variables that another launcher would set. launcher is that launcher; zero for none.
	inner    map[string]string
	launcher commandline.RankStarter
	// typed are the words without leading variables and without wrappers that gpurun replaces.
	typed    []string
	used     []string // names of the variables in the line
	warnings []string
}

// words are the typed words, with the environment that their meaning depends on.
type words struct {
	typed    []string
	assigned commandline.Environ // variables before the words
	// self: the words are one process, which runs unchanged.
	self bool
	// env are the job's own variables, and inherited those of gpurun. PET_* in both count.
	env, inherited commandline.Environ
	dir            string
	hook           frameworkHook // may be nil
	// seen has the wrappers among the words, once command has removed them; then assigned and the variables
	// of wrappers are in env.
	seen commandline.SeenThrough
}

// commandFrom splits a line as a shell does, replaces its variables, and parses it. w has no words yet. The
// error has a hint.
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

// command separates from the words what gpurun does itself: leading variables, torchrun, the interpreter. The
// error has a hint.
func (w words) command() (*command, error) {
	if len(w.typed) == 0 {
		return nil, errext.Errorf("", "the command is empty")
	}
	if w.self {
		return &command{kind: Program, argv: w.typed, env: w.assigned}, nil
	}
	assigned := w.assigned
	w.seen = commandline.Known.SeeThrough(w.typed)
	if len(w.seen.Env) > 0 {
		assigned = assigned.With(w.seen.Env)
	}
	w.env = w.env.With(assigned)
	c, err := w.innerCommand()
	switch {
	case c != nil || err != nil:
	case w.seen.Direct:
		c = &command{kind: Script, argv: w.seen.Inner}
	default:
		c, err = unwrap(w.seen.Inner, w.inherited.With(w.env))
	}
	if err != nil {
		return nil, err
	}
	if c.kind == Program {
		c.argv = w.throughShell(c.argv)
	}
	c.env, c.warnings = assigned, w.seen.Warnings
	c.behind(w.seen)
	if len(c.through.Wrappers)+len(c.through.Options) > 0 {
		c.typed = w.seen.Typed
	}
	for name, value := range c.inner {
		if _, set := w.env[name]; set {
			continue // the user's value overrides it
		}
		if c.env == nil {
			c.env = map[string]string{}
		}
		c.env[name] = value
	}
	return c, nil
}

// unwrap removes torchrun and the interpreter from a command, and refuses other launchers. env has the
// variables before the command.
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

// unwrapTorchrun removes torchrun, under either of its names; nil if it is not the first word.
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

// refuseInner refuses a launcher that gpurun would start on each rank.
func refuseInner(kind Kind, argv []string) error {
	err := refused(commandline.Known.StartsRanks(kind, argv))
	if err == nil && kind == Program {
		err = misplaced(nil, argv, []string{"gpurun"}, argv)
	}
	return err
}

// refused returns the error for a launcher that would start on each rank; nil for none.
func refused(name string) error {
	if name == "" {
		return nil
	}
	return errext.Errorf(`set launch.ranks = "self", or give the command that it runs on each rank`,
		"%s starts its own ranks: it would be started once for each rank", name)
}

// unwrapPython removes the interpreter, which gpurun starts itself, always with -u. If it has options that
// change what it runs, it stays, and the command is a program.
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

// A frameworkHook removes a framework's launcher from words without wrappers. It reports false if it finds no
// known launcher.
type frameworkHook func(words) (commandline.Inner, bool, error)

// innerCommand returns the command in a framework's launcher; nil if the words have no such launcher.
func (w words) innerCommand() (*command, error) {
	if w.hook == nil {
		return nil, nil
	}
	inner, known, err := w.hook(w)
	if err != nil || !known {
		return nil, err
	}
	c := &command{kind: inner.Kind, argv: inner.Argv, inner: maps.Clone(inner.Env), launcher: inner.RankStarter, nodes: inner.Nodes}
	if commandline.IsPython(w.seen.Inner[0]) {
		c.python = w.seen.Inner[0]
	}
	if inner.Ranks != "" {
		c.line = commandline.LaunchOf(inner.Ranks, "the launcher's number of ranks")
	}
	return c, refuseInner(c.kind, c.argv)
}

// ErrHelp: the command line requests help.
var ErrHelp = commandline.ErrHelp

// readTorchrun reads torchrun's command line, with gpurun's own flags among torchrun's. legacy means
// torch.distributed.launch. Errors have hints; ErrHelp means that the user requests help.
func readTorchrun(args []string, env commandline.Environ, legacy bool) (*commandline.TorchrunCommand, error) {
	line, err := commandline.ReadTorchrun(args, env, legacy)
	if err != nil {
		return nil, withHint(err)
	}
	return line, nil
}

// withHint adds a hint to an error about a word of a command line.
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

// typed returns the launch settings with those of torchrun's flags. Relative paths count from dir.
func (l LaunchSettings) typed(line *commandline.TorchrunCommand, dir string) LaunchSettings {
	l.RankOptions, l.Auto = line.RankOptions, AutoDevices
	l.LogDir = under(dir, l.LogDir)
	return l
}

// many bounds numbers that have no other bound.
const many = 1 << 30
