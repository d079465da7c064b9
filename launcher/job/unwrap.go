package job

import (
	"maps"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
)

// A command is what a job runs, out of what the user typed.
type command struct {
	kind Kind
	argv []string
	env  map[string]string
	// python and torchrun are the interpreter and the launcher as typed.
	python, torchrun string
	// line is what torchrun's flags said; nil where there was no torchrun.
	line *commandline.Launch
	// inner are the variables that another launcher would have set, and launcher is
	// which one that is; zero for none.
	inner    map[string]string
	launcher Launcher
}

// commandFrom splits a line as typed into a shell, and takes apart what gpurun
// does itself: leading variables, torchrun, the interpreter. With self, the line
// is one process that is run as it is. env holds the job's own variables: PET_*
// of them count. hook takes other launchers off; it may be nil.
// The error has a hint.
func commandFrom(line string, self bool, env map[string]string, dir string, hook Unwrap) (*command, error) {
	split, err := commandline.Words(line)
	if err != nil {
		return nil, withHint(err)
	}
	assigned, words := commandline.Assignments(split)
	typed := assigned
	if len(words) == 0 {
		return nil, errext.Errorf("", "the command is empty")
	}
	if self {
		return &command{kind: Program, argv: words, env: typed}, nil
	}
	words, typed = commandline.Known.TakeOff(words, typed)
	all := maps.Clone(env)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, typed)
	c, err := innerCommand(words, all, dir, hook)
	if c == nil && err == nil {
		c, err = unwrap(words, all)
	}
	if err != nil {
		return nil, err
	}
	c.env = typed
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
	if isPython(words[0]) {
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
	c.kind, c.argv, c.line = line.Kind, line.Command, line
	return c, refuseInner(c.kind, c.argv)
}

// refuseInner refuses a launcher that gpurun would start once a rank.
func refuseInner(kind Kind, argv []string) error {
	if name := commandline.Known.StartsRanks(kind, argv); name != "" {
		return errext.Errorf(`set launch.ranks = "self", or give the command that it runs on each rank`,
			"%s starts ranks of its own: it would be started once for each rank", name)
	}
	return nil
}

// unwrapPython takes the interpreter off: gpurun starts it itself, always with
// -u. With other options it stays, and the command is a program.
func unwrapPython(words []string) (*command, error) {
	p, err := commandline.ReadPython(words)
	switch {
	case err != nil || p.Kind == Program || !p.Plain:
		return &command{kind: Program, argv: words}, nil
	case len(p.Argv) == 0:
		return nil, errext.Errorf("name the script", "%s would wait for input", words[0])
	}
	return &command{kind: p.Kind, argv: p.Argv, python: words[0]}, nil
}
