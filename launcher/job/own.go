package job

import (
	"path/filepath"
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
// train.toml where that is what it runs; file is empty for a script. After a
// train.toml there can be nothing but flags of gpurun, so that they may stand
// there too. Errors are *UsageError; ErrHelp where help is asked for.
func TrainFile(args, env []string) (file string, own Own, err error) {
	line, err := parseTorchrun(args, lookup(env), false)
	if err != nil {
		return "", own, err
	}
	if line.kind() != Script || !isTOML(line.command[0]) {
		return "", line.own, nil
	}
	if len(line.command) > 1 {
		if err := line.after(line.command[0], line.command[1:]); err != nil {
			return "", line.own, err
		}
	}
	for name, source := range line.set {
		isOwn := slices.ContainsFunc(ownFlags(), func(f *flag) bool { return f.name == name })
		if !isOwn && strings.HasPrefix(source, "-") {
			return "", line.own, usage("put it into the [launch] table of "+line.command[0], "%s goes with a script, not with a train.toml", source)
		}
	}
	return line.command[0], line.own, nil
}

func isTOML(name string) bool { return strings.EqualFold(filepath.Ext(name), ".toml") }

// after reads the flags that follow a train.toml.
func (c *commandLine) after(file string, words []string) error {
	found, rest, err := parseFlags(append(torchrunFlags(), ownFlags()...), words)
	if err != nil || len(rest) > 0 {
		word := words[0]
		if len(rest) > 0 {
			word = rest[0]
		}
		hint := "put the job's arguments into job.args"
		if isTOML(word) {
			hint = "gpurun runs one job: start it once for each"
		}
		return usage(hint, "%s is followed by %q", file, word)
	}
	for _, g := range found {
		c.from = g.source
		if err := g.take(c, g.value); err != nil {
			return err
		}
		c.set[g.name] = g.source
	}
	return nil
}
