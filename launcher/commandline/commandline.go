// Package commandline reads the command lines of all launchers and wrappers. Their options are data, read by
// one parser.
//
// A [RankLauncher] starts ranks: torchrun, accelerate launch, deepspeed. A [Wrapper] starts one command: env,
// uv run, numactl. Each is one value in a [ProgramTable]; [OptionGrammar.Read] reads the options of all. This
// package opens no file and starts no process: a launcher's files come through [Files].
package commandline

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/lazy"
)

// A CommandKind is the kind of a command's first word.
type CommandKind string

// The kinds of command.
const (
	Script  CommandKind = "script"  // a Python file, run by the interpreter
	Module  CommandKind = "module"  // a Python module, run by the interpreter with -m
	Program CommandKind = "program" // another program, executed unchanged
)

// A RankStarter describes how a launcher starts its ranks.
type RankStarter struct {
	// Wrapper is the launcher's name, such as "accelerate launch"; empty for none.
	Wrapper string
	// Alone: the launcher starts a single rank as a process without a rank number.
	Alone bool
	// NUMA: without GPUs the launcher starts one rank per NUMA node.
	NUMA bool
	// Vars are the variables with the number of a rank's node.
	Vars NodeVars
}

// An Inner is the command that a launcher starts on each rank.
type Inner struct {
	RankStarter
	// Kind is the kind of Argv[0].
	Kind CommandKind
	Argv []string
	// Env are the variables that the launcher sets for the ranks.
	Env map[string]string
	// Ranks is the number of ranks for this node, as torchrun's --nproc-per-node takes it. Empty means one
	// per GPU, or one without GPUs.
	Ranks string
	Nodes Nodes
}

// NodeVars are names of variables with the node's number, the number of nodes, and the number of ranks on
// this node. A name is empty if there is no such variable.
type NodeVars struct{ Rank, Count, Local string }

// Site is the prefix of words of Inner.Argv that name a file of the framework. The rest of the word is the
// file's path in the interpreter's packages.
const Site = "{site}/"

// LocalRank is a placeholder in Inner.Argv for an argument that differs between ranks: {local_rank} is the
// rank's number on its node.
const LocalRank = "--local_rank={local_rank}"

// A RankLauncher is a program that starts ranks.
type RankLauncher struct {
	// Command has the first words of its command line, such as {"accelerate", "launch"}. It is empty for a
	// launcher that is only a module.
	Command []string
	// Aliases are alternatives to Command.
	Aliases [][]string
	// Modules replace the whole command, as in "python -m MODULE". Programs replace only its first word: the
	// subcommand follows.
	Modules, Programs []string
	Grammar           OptionGrammar
	Starts            Starts
	// Vars are the variables with the number of a rank's node, besides torchrun's.
	Vars NodeVars
	// takes reads the words after the command, and returns what gpurun starts in place of the launcher. If it
	// is nil, gpurun cannot replace the launcher, and refuses to start it on each rank. [ReadTorchrun] reads
	// torchrun's options.
	takes func(l *RankLauncher, c LauncherCall) (Inner, error)
}

// Starts describes what a framework's launcher starts on each rank: a module, a file of the framework's
// packages, or else the user's script.
type Starts struct {
	Module string
	// Site is a path in the packages. {1} in it is replaced by the first word that is no option, which is
	// removed from the arguments. If that word is a script of the user, the script is started instead.
	Site string
	// Ranks and Nodes are the variables with the number of ranks on a node, and of
	// nodes.
	Ranks, Nodes string
	// One: the default is one rank.
	One bool
	// Alone: a single rank is a process without a rank number, unless the variable Forced has a true value.
	Alone  bool
	Forced string
	// Env are variables that the launcher sets unless they are set.
	Env map[string]string
	// Files maps an option to a path in the packages, in which "{}" is the option's value. It applies if the
	// value itself is no file.
	Files map[string]string
	// Expand: the first word can be a configuration file whose keys are arguments.
	Expand bool
	// Through is the option that selects the launcher which starts the module; the default is accelerate
	// launch. Options are passed on to that launcher.
	Through string
	// HandedIn is the option that names a file whose keys can be options to pass on.
	HandedIn string
	// Configs maps an option to a path in the packages, in which "{}" is the option's value. The file is the
	// configuration of accelerate launch. It applies if the value itself is no file.
	Configs map[string]string
}

// Name returns the launcher's name for messages.
func (l *RankLauncher) Name() string {
	if len(l.Command) == 0 {
		return l.Modules[0]
	}
	return strings.Join(l.Command, " ")
}

// A LauncherCall is a launcher's command line with the environment and files that its meaning depends on.
type LauncherCall struct {
	Args  []string // arguments after the command
	Env   Environ
	Files Files
}

// Files gives access to the files that a launcher would read.
type Files struct {
	// Exists reports whether a file exists. Text reads a file.
	Exists func(path string) bool
	Text   func(path string) (string, error)
	// Table reads a YAML or JSON file whose top level is a table, in the file's order. The error names the
	// file.
	Table func(path string) ([]Pair, error)
}

// A Pair is a key of a configuration file's table with its value: a text, a list or a table, of which one is
// set.
type Pair struct {
	Key  string
	Kind ValueKind
	// Text is a single value as written, without quotes.
	Text  string
	List  []string
	Table []Pair
}

// A ValueKind is the kind of a value in a configuration file.
type ValueKind int

// The kinds of values.
const (
	Single ValueKind = iota
	Null
	List
	Nested
)

// python matches the base name of an interpreter.
var python = lazy.Regexp(`^(python|pypy)[0-9.]*$`)

// IsPython reports whether a word names a Python interpreter.
func IsPython(word string) bool { return python().MatchString(path.Base(word)) }

// Environ is the environment of a process as one value: variables by name, which are read
// from and written to the words that execve takes.

// Environ are variables by name. A nil Environ is an empty environment.
type Environ map[string]string

// ParseEnviron reads the words NAME=VALUE of an environment. If a name is given twice, the last one counts, as in
// bash. Words without "=" are omitted.
func ParseEnviron(words []string) Environ {
	v := make(Environ, len(words))
	for _, word := range words {
		if name, value, ok := strings.Cut(word, "="); ok {
			v[name] = value
		}
	}
	return v
}

// Words returns the environment as execve takes it, sorted, each name once.
func (v Environ) Words() []string {
	words := make([]string, 0, len(v))
	for name, value := range v {
		words = append(words, name+"="+value)
	}
	slices.Sort(words)
	return words
}

// With returns a copy with more variables set. Later sets override earlier ones.
func (v Environ) With(sets ...map[string]string) Environ {
	merged := make(Environ, len(v))
	maps.Copy(merged, v)
	for _, set := range sets {
		maps.Copy(merged, set)
	}
	return merged
}

// Lookup finds a variable, and whether it is set.
func (v Environ) Lookup(name string) (string, bool) {
	value, set := v[name]
	return value, set
}
