package job

import (
	"maps"

	"github.com/gpurun/gpurun/launcher/commandline"
)

// An Inner is what another launcher than torchrun starts on each rank.
type Inner struct {
	Kind Kind
	Argv []string
	// Env are the variables that the launcher sets; those of the command itself
	// are stronger.
	Env map[string]string
	// Ranks is the number of ranks that the launcher was asked for, empty for none.
	Ranks string
	// Nodes is what the launcher was told of the nodes of the launch.
	Nodes commandline.Nodes
	// Launcher is who would have started them.
	Launcher Launcher
}

// An Unwrap takes a framework's launcher off a command, and the wrappers in front of
// it; false where it knows none in it. env are the variables that stand before it and those of the job,
// dir is the working directory.
type Unwrap func(words []string, env map[string]string, dir string) (Inner, bool, error)

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
	c := &command{kind: inner.Kind, argv: inner.Argv, inner: maps.Clone(inner.Env), launcher: inner.Launcher, nodes: inner.Nodes}
	if isPython(inside[0]) {
		c.python = inside[0]
	}
	if inner.Ranks != "" {
		c.line = commandline.LaunchOf(inner.Ranks, "the launcher's number of ranks")
	}
	return c, refuseInner(c.kind, c.argv)
}
