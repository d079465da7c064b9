// Package commandline reads every launcher's and wrapper's own command line:
// options as data, one reader.
//
// A [RankLauncher] starts ranks: torchrun, accelerate launch, deepspeed. A [Wrapper]
// starts one command: env, uv run, numactl. Each is one value, listed in one
// [ProgramTable]; [OptionGrammar.Read] reads the options of all of them. Nothing here opens a
// file or starts a process: what a launcher reads from a file comes through
// [Files].
package commandline

import (
	"path"
	"regexp"
	"strings"

	"github.com/gpurun/gpurun/launcher/environ"
)

// A CommandKind is the kind of a command's first word.
type CommandKind string

// The kinds of command.
const (
	Script  CommandKind = "script"  // a Python file, run by the interpreter
	Module  CommandKind = "module"  // a Python module, run by the interpreter with -m
	Program CommandKind = "program" // another program, executed unchanged
)

// A RankStarter is how a launcher starts its ranks.
type RankStarter struct {
	// Wrapper is the launcher's name: "accelerate launch"; empty for none.
	Wrapper string
	// Alone: where there is one rank, the launcher starts it as a process that has
	// no rank.
	Alone bool
	// NUMA: without GPUs there is a rank for each NUMA node.
	NUMA bool
	// Vars are the variables that number a rank's node.
	Vars NodeVars
}

// An Inner is what a launcher starts on each rank.
type Inner struct {
	RankStarter
	// Kind says what Argv[0] is.
	Kind CommandKind
	Argv []string
	// Env are the variables that the launcher sets for the ranks.
	Env map[string]string
	// Ranks is how many the command line asks for on this node, in torchrun's
	// words; empty where it does not say: a rank for each GPU then, else one.
	Ranks string
	Nodes Nodes
}

// NodeVars are names of variables: of the node's number, of how many nodes there are,
// and of the ranks on this one. Empty ones there are not.
type NodeVars struct{ Rank, Count, Local string }

// Site is the beginning of words of Inner.Argv that name a file which the
// framework brings with it: the rest is its path in the interpreter's packages.
const Site = "{site}/"

// LocalRank stands in Inner.Argv for an argument that differs from rank to rank:
// {local_rank} is the rank's number on its node.
const LocalRank = "--local_rank={local_rank}"

// A RankLauncher is a program that starts ranks itself.
type RankLauncher struct {
	// Command is how its command line begins: {"accelerate", "launch"}. It is empty
	// for one that is known as a module only.
	Command []string
	// Aliases are other beginnings that mean the same.
	Aliases [][]string
	// Modules start the whole command as "python -m MODULE" does, Programs only its
	// first word: the subcommand follows.
	Modules, Programs []string
	Grammar           OptionGrammar
	Starts            Starts
	// Vars are the variables in which it numbers a rank's node, next to torchrun's.
	Vars NodeVars
	// takes understands the words behind the command: what gpurun does in the
	// launcher's place. nil: gpurun refuses to start the launcher on a rank, and
	// cannot take it over; torchrun's options are read by [ReadTorchrun].
	takes func(l *RankLauncher, c LauncherCall) (Inner, error)
}

// Starts is what a framework's launcher starts on each rank: a module; a file of
// the framework's packages; with neither, the user's script.
type Starts struct {
	Module string
	// Site is a path in the packages, in which {1} is the first word that is no
	// option, taken off. A user's own script in its place is what is started.
	Site string
	// Ranks and Nodes are the variables with the number of ranks on a node, and of
	// nodes.
	Ranks, Nodes string
	// One: there is one rank where nothing says how many.
	One bool
	// Alone: a single rank is a process that has no rank, unless the variable Forced
	// is set to a true word.
	Alone  bool
	Forced string
	// Env are variables that the launcher sets, where they are not set.
	Env map[string]string
	// Files maps an option to the file in the packages, "{}" for its value, that is
	// meant where the value is no file.
	Files map[string]string
	// Expand: the first word can be a file whose keys are arguments.
	Expand bool
	// Through is the option that says by which launcher the module is started,
	// accelerate launch by default, for one that hands options on to it.
	Through string
	// HandedIn is the option that names a file whose keys can be options to hand on.
	HandedIn string
	// Configs maps an option to the file in the packages, "{}" for its value, that
	// is the configuration of accelerate launch where the value is no file.
	Configs map[string]string
}

// Name is the launcher's name in messages.
func (l *RankLauncher) Name() string {
	if len(l.Command) == 0 {
		return l.Modules[0]
	}
	return strings.Join(l.Command, " ")
}

// A LauncherCall is a launcher's command line, and what of the outside world its meaning
// rests on.
type LauncherCall struct {
	Args []string // what follows the command
	// Env are the variables that the launcher would see.
	Env   environ.Vars
	Files Files
}

// Files are the files that a launcher would read, as it would find them.
type Files struct {
	// Exists reports whether there is a file, and Text reads one.
	Exists func(path string) bool
	Text   func(path string) (string, error)
	// Table reads a YAML or JSON file whose top level is a table, in its order. The
	// error names the file.
	Table func(path string) ([]Pair, error)
}

// A Pair is a key of a configuration file's table with its value: a single text, a
// list or a table, of which only one is set.
type Pair struct {
	Key  string
	Kind ValueKind
	// Text is a single value as it is written, without quotes.
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
var python = regexp.MustCompile(`^(python|pypy)[0-9.]*$`)

// IsPython reports whether a word names an interpreter of Python.
func IsPython(word string) bool { return python.MatchString(path.Base(word)) }
