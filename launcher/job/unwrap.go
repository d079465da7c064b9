package job

import (
	"maps"
	"path/filepath"
	"strings"

	"github.com/gpurun/gpurun/launcher/commandline"
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
	// inner are the variables that another launcher would have set.
	inner map[string]string
}

// commandFrom splits a line as typed into a shell, and takes apart what gpurun
// does itself: leading variables, torchrun, the interpreter. With self, the line
// is one process that is run as it is. env holds the job's own variables: PET_*
// of them count. hook takes other launchers off; it may be nil. The error is a
// *UsageError.
func commandFrom(line string, self bool, env map[string]string, dir string, hook Unwrap) (*command, error) {
	split, err := commandline.Words(line)
	if err != nil {
		return nil, asUsage(err)
	}
	assigned, words := commandline.Assignments(split)
	typed := map[string]string(assigned)
	if len(words) == 0 {
		return nil, usage("", "the command is empty")
	}
	if self {
		return &command{kind: Program, argv: words, env: typed}, nil
	}
	words, typed = withoutEnv(words, typed)
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

// withoutEnv takes exec and env NAME=value off, where nothing more is asked of
// them.
func withoutEnv(words []string, env map[string]string) ([]string, map[string]string) {
	if words[0] == "exec" && len(words) > 1 && !strings.HasPrefix(words[1], "-") {
		words = words[1:]
	}
	if words[0] != "env" || len(words) == 1 || strings.HasPrefix(words[1], "-") {
		return words, env
	}
	more := maps.Clone(env)
	if more == nil {
		more = map[string]string{}
	}
	rest := words[1:]
	for len(rest) > 0 && assignment.MatchString(rest[0]) {
		name, value, _ := strings.Cut(rest[0], "=")
		more[name] = value
		rest = rest[1:]
	}
	if len(rest) == 0 {
		return words, env
	}
	return rest, more
}

// unwrap takes torchrun and the interpreter off a command, and refuses other
// launchers. env holds variables that stood before it.
func unwrap(words []string, env map[string]string) (*command, error) {
	c, err := unwrapTorchrun(words, env)
	if c != nil || err != nil {
		return c, err
	}
	if name := launcherIn(words); name != "" {
		return nil, oncePerRank(name)
	}
	if isPython(words[0]) {
		return unwrapPython(words)
	}
	return &command{kind: Program, argv: words}, nil
}

// unwrapTorchrun takes torchrun off, in either of its names; nil where it is not
// in front.
func unwrapTorchrun(words []string, env map[string]string) (*command, error) {
	c := &command{}
	args, legacy := words[1:], false
	if filepath.Base(words[0]) == "torchrun" {
		c.torchrun = words[0]
	} else {
		inner := words[1:]
		for len(inner) > 0 && inner[0] == "-u" {
			inner = inner[1:]
		}
		if !isPython(words[0]) || len(inner) < 2 || inner[0] != "-m" {
			return nil, nil
		}
		legacy = inner[1] == "torch.distributed.launch"
		if !legacy && inner[1] != "torch.distributed.run" {
			return nil, nil
		}
		c.python, args = words[0], inner[2:]
	}
	line, err := readTorchrun(args, env, legacy)
	if err != nil {
		return nil, err
	}
	if line.Python != "" {
		return nil, usage("set job.python", "torchrun has no flag --python")
	}
	c.kind, c.argv, c.line = line.Kind, line.Command, line
	return c, refuseInner(c.kind, c.argv)
}

// refuseInner refuses a launcher inside a launcher.
func refuseInner(kind Kind, argv []string) error {
	name := ""
	switch kind {
	case Program:
		name = launcherIn(argv)
	case Module:
		name = launcherModules[argv[0]]
	case Script:
		name = launcherAt(argv)
	}
	if name != "" {
		return oncePerRank(name)
	}
	return nil
}

// unwrapPython takes the interpreter off: gpurun starts it itself, always with
// -u. With other options it stays, and the command is a program.
func unwrapPython(words []string) (*command, error) {
	args := words[1:]
	for len(args) > 0 && args[0] == "-u" {
		args = args[1:]
	}
	switch {
	case len(args) == 0:
		return nil, usage("name the script", "%s would wait for input", words[0])
	case args[0] == "-m" && len(args) > 1:
		return &command{kind: Module, argv: args[1:], python: words[0]}, nil
	case strings.HasPrefix(args[0], "-"):
		return &command{kind: Program, argv: words}, nil
	}
	return &command{kind: Script, argv: args, python: words[0]}, nil
}
