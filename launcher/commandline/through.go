package commandline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// takeThrough takes a launcher over that starts its module by another one, and
// that one with it.
func takeThrough(l *Launcher, c Call) (Inner, error) {
	read, err := l.read(c.Args)
	if err != nil {
		return Inner{}, err
	}
	s := &l.Starts
	handed, err := l.handedInFile(read.Rest, c.Files)
	if err != nil {
		return Inner{}, err
	}
	launcher := "accelerate"
	for _, g := range read.Given { // the command line is stronger than the file
		switch {
		case g.Means == HandedOn && g.Bare:
			handed = append(handed, "--"+g.Name)
		case g.Means == HandedOn:
			handed = append(handed, "--"+g.Name+"="+g.Value)
		case s.Configs[g.Name] != "":
			handed = append(handed, s.config(g.Name, g.Value, c.Files))
		case s.Through != "" && g.Name == s.Through:
			launcher = g.Value
		}
	}
	module := append([]string{"-m", s.Module}, read.Rest...)
	handed = slices.Concat(handed, read.Beyond, module)
	switch launcher {
	case "accelerate":
		return takeAccelerate(l, Call{Args: handed, Env: c.Env, Files: c.Files})
	case "torchrun":
		return takeTorchrun(handed)
	}
	return Inner{Kind: Module, Argv: module[1:], Ranks: "1", Alone: true}, nil // python: one process
}

// handedInFile are the launcher's options in the file that holds the module's, in
// the order of their names.
func (l *Launcher) handedInFile(args []string, files Files) ([]string, error) {
	if l.Starts.HandedIn == "" {
		return nil, nil
	}
	file, named := argument(append([]string{l.Starts.Module}, args...), l.Starts.HandedIn)
	if !named {
		return nil, nil
	}
	table, err := files.Table(file.Value)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(table, func(a, b Pair) int { return cmp.Compare(a.Key, b.Key) })
	var words []string
	for _, pair := range table {
		o := l.Grammar.named(pair.Key)
		switch {
		case o == nil:
		case o.Means == Refused:
			return nil, fmt.Errorf("gpurun cannot take %s in %s over: set launch.ranks = \"self\", or leave it out", pair.Key, file.Value)
		case pair.Kind == Null, pair.Kind == Single && strings.EqualFold(pair.Text, "false"):
		case pair.Kind != Single:
			return nil, fmt.Errorf("%s: %s is no single value, which gpurun cannot turn into an option", file.Value, pair.Key)
		case l.Starts.Configs[o.Name] != "":
			words = append(words, l.Starts.config(o.Name, pair.Text, files))
		case o.Means == HandedOn && o.Bare && strings.EqualFold(pair.Text, "true"):
			words = append(words, "--"+o.Name)
		case o.Means == HandedOn:
			words = append(words, "--"+o.Name+"="+pair.Text)
		}
	}
	return words, nil
}

// config names the configuration of accelerate launch by its file: one that the
// framework brings with it, where the name is that of no file.
func (s *Starts) config(option, value string, files Files) string {
	if !files.Exists(value) {
		value = Site + strings.ReplaceAll(s.Configs[option], "{}", value)
	}
	return "--config_file=" + value
}

// takeTorchrun takes torchrun's options off that a launcher hands on to it. Of them
// the numbers of ranks and nodes matter: the ranks' output is gpurun's.
func takeTorchrun(args []string) (Inner, error) {
	read, err := readLauncher(&torchrun.Grammar, args)
	if err != nil {
		return Inner{}, err
	}
	if len(read.Rest) == 0 {
		return Inner{}, errNoScript
	}
	kind, ranks := read.understood()
	if ranks == "" {
		ranks = "1" // as torchrun does
	}
	nodes, err := nodesOf(read.Given)
	return Inner{Kind: kind, Argv: read.Rest, Ranks: ranks, Nodes: nodes}, err
}
