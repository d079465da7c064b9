package job

import (
	"slices"
	"strings"
)

// Own are the flags that gpurun has and torchrun has not. They may stand among
// torchrun's flags, before the script or the train.toml.
type Own struct {
	JSON      bool   // events and verdict as JSON lines on stdout
	Quiet     bool   // of gpurun's words only failures and the end
	RunDir    string // the run directory, as given
	Propagate bool   // exit with the job's own code where it failed by itself
}

// ownFlags are those flags, as parseFlags knows flags. They have no variables:
// PET_* is torchrun's.
func ownFlags() []*flag {
	truth := func(name string, into func(*Own) *bool) *flag {
		return &flag{name: name, truth: true, noVariable: true,
			take: func(c *commandLine, v string) error { return c.truth(into(&c.own), v) }}
	}
	return []*flag{
		truth("json", func(o *Own) *bool { return &o.JSON }),
		truth("quiet", func(o *Own) *bool { return &o.Quiet }),
		truth("propagate-exit-code", func(o *Own) *bool { return &o.Propagate }),
		{name: "run-dir", noVariable: true, take: func(c *commandLine, v string) error { c.own.RunDir = v; return nil }},
	}
}

// TrainFile reads gpurun's own flags from a command line, and the path of a
// train.toml where that is what it runs; file is empty for a script. Errors are
// *UsageError; ErrHelp where help is asked for.
func TrainFile(args, env []string) (file string, own Own, err error) {
	line, err := parseTorchrun(args, lookup(env), false)
	if err != nil {
		return "", own, err
	}
	if line.kind() != Script || !strings.HasSuffix(line.command[0], ".toml") {
		return "", line.own, nil
	}
	if len(line.command) > 1 {
		return "", line.own, usage("put the job's arguments into job.args", "%s is followed by %q", line.command[0], line.command[1])
	}
	for name, source := range line.set {
		isOwn := slices.ContainsFunc(ownFlags(), func(f *flag) bool { return f.name == name })
		if !isOwn && strings.HasPrefix(source, "-") {
			return "", line.own, usage("put it into the [launch] table of "+line.command[0], "%s goes with a script, not with a train.toml", source)
		}
	}
	return line.command[0], line.own, nil
}
