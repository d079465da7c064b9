package commandline

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/environ"
)

// UnwrapLauncher takes a framework's launcher off a command. It is false where the command
// begins with none that gpurun can take over; the error says what gpurun cannot
// take over from it. torchrun is none of them: [ReadTorchrun] reads it.
func (t *Table) UnwrapLauncher(words []string, env environ.Vars, files Files) (Inner, bool, error) {
	f, found := t.Find(words)
	if !found || f.Skipped || f.takes == nil {
		return Inner{}, false, nil
	}
	inner, err := f.takes(f.Launcher, Call{Args: f.Args, Env: env, Files: files})
	if err != nil {
		return Inner{}, true, fmt.Errorf("%s: %w", f.Name, err)
	}
	inner.Wrapper, inner.Vars = f.Name, f.Vars
	for name, value := range f.Starts.Env {
		if _, set := env[name]; set {
			continue
		}
		if inner.Env == nil {
			inner.Env = map[string]string{}
		}
		inner.Env[name] = value
	}
	return inner, true, nil
}

// read takes the launcher's own options off, and refuses those that gpurun cannot
// honour.
func (l *Launcher) read(args []string) (Reading, error) { return readLauncher(&l.Grammar, args) }

func readLauncher(g *Grammar, args []string) (Reading, error) {
	r, err := g.Read(args)
	var problem *Problem
	if errors.As(err, &problem) && problem.Fault == Unknown {
		return r, fmt.Errorf("gpurun does not know the option %s: set launch.ranks = \"self\"", problem.Option)
	}
	if err != nil {
		return r, err
	}
	for _, g := range r.Given {
		if g.Means == Refused || g.Means == Help {
			return r, fmt.Errorf("gpurun cannot take %s over: set launch.ranks = \"self\", or leave it out", g.Source)
		}
	}
	return r, nil
}

// understood is what the options' meanings say: how many ranks there are, and what
// the first word of the rest is.
func (r Reading) understood() (kind Kind, ranks string) {
	kind = Script
	for _, g := range r.Given {
		switch g.Means {
		case Ranks:
			ranks = g.Value
		case AsModule:
			kind = Module
		case AsProgram:
			if kind == Script { // a module is one, whatever else is said
				kind = Program
			}
		}
	}
	return kind, ranks
}

var (
	errNoScript = errors.New("it names no script")
	errNothing  = errors.New("it names nothing to start")
)

// takeFramework takes a launcher over of which [Starts] says all.
func takeFramework(l *Launcher, c Call) (Inner, error) {
	read, err := l.read(c.Args)
	if err != nil {
		return Inner{}, err
	}
	args := read.Rest
	if read.Beyond != nil {
		args = slices.Concat(args, []string{"--"}, read.Beyond)
	}
	inner := Inner{Env: map[string]string{}}
	if inner.Nodes, err = nodesOf(read.Given); err != nil {
		return Inner{}, err
	}
	kind, ranks := read.understood()
	if l.Starts.Expand && len(args) > 0 && isConfig(args[0]) {
		words, err := expand(args[0], c, inner.Env)
		if err != nil {
			return Inner{}, err
		}
		args = append(words, args[1:]...)
	}
	s := &l.Starts
	switch {
	case s.Module != "":
		inner.Kind, inner.Argv = Module, append([]string{s.Module}, args...)
	case len(args) == 0:
		return Inner{}, errNothing
	case s.Site != "" && !strings.HasSuffix(args[0], ".py"):
		inner.Kind, inner.Argv = Script, append([]string{Site + strings.ReplaceAll(s.Site, "{1}", args[0])}, args[1:]...)
	default: // of a site, the user's own copy
		inner.Kind, inner.Argv = kind, args
	}
	inner.Alone = s.Alone && !slices.Contains([]string{"1", "true", "y", "yes", "on"}, strings.ToLower(c.Env[s.Forced]))
	s.count(&inner, ranks, c.Env)
	s.name(&inner, c.Files)
	return inner, nil
}

// count is the number of ranks, and what variables say of the nodes. The user's are
// stronger than those of an expanded file.
func (s *Starts) count(inner *Inner, given string, env map[string]string) {
	variable := func(name string) string {
		if value, set := env[name]; set || name == "" {
			return value
		}
		return inner.Env[name]
	}
	if s.Nodes != "" && variable(s.Nodes) != "" {
		inner.Nodes = Nodes{
			Count: Said{variable(s.Nodes), s.Nodes}, Rank: Said{variable(nodeRank), nodeRank}, Head: Said{variable(masterAddr), masterAddr},
		}
	}
	inner.Alone = inner.Alone && !inner.Nodes.Several()
	inner.Ranks = given
	if given == "" {
		inner.Ranks = variable(s.Ranks)
	}
	if inner.Ranks == "" && s.One {
		inner.Ranks = "1"
	}
}

// The variables by which frameworks that count nodes in one number them, and find the
// first.
const nodeRank, masterAddr = "NODE_RANK", "MASTER_ADDR"

// name replaces arguments that name a file of the framework by its path.
func (s *Starts) name(inner *Inner, files Files) {
	for option, file := range s.Files {
		g, found := argument(inner.Argv, option)
		if !found || isConfig(g.Value) || files.Exists(g.Value) {
			continue
		}
		value := Site + strings.ReplaceAll(file, "{}", g.Value)
		inner.Argv = slices.Clone(inner.Argv)
		if g.Attached {
			head, _, _ := strings.Cut(inner.Argv[g.At], "=")
			inner.Argv[g.At] = head + "=" + value
		} else {
			inner.Argv[g.At+1] = value
		}
	}
}

// argument finds the last of an option among the arguments of a script or module,
// which stands in front of them.
func argument(argv []string, option string) (Given, bool) {
	one := Grammar{Mixed: true, Options: valued(option)}
	read, err := one.Read(argv[1:])
	if err != nil {
		return Given{}, false // who reads the arguments complains of it
	}
	g, found := read.Last(option)
	g.At++
	return g, found
}

// isConfig reports whether a word names a configuration file.
func isConfig(word string) bool {
	switch strings.ToLower(path.Ext(word)) {
	case ".json", ".jsonc", ".json5", ".hjson", ".yaml", ".yml", ".toml":
		return true
	}
	return false
}

// expand turns the keys of a file into arguments, in their order; its ENV becomes
// variables, where they are not set.
func expand(file string, c Call, into map[string]string) ([]string, error) {
	table, err := c.Files.Table(file)
	if err != nil {
		return nil, err
	}
	var words []string
	for _, pair := range table {
		switch {
		case pair.Key == "ENV" && pair.Kind == Nested:
			for _, variable := range pair.Table {
				if _, set := c.Env[variable.Key]; !set {
					into[variable.Key] = variable.Text
				}
			}
		case pair.Kind == Null:
		case pair.Kind == Single:
			words = append(words, "--"+pair.Key, pair.Text)
		case pair.Kind == List:
			words = append(append(words, "--"+pair.Key), pair.List...)
		default:
			return nil, fmt.Errorf("%s: %s is a table, which gpurun cannot turn into an argument", file, pair.Key)
		}
	}
	return words, nil
}
