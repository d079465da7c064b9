// Package job reads and validates what the user wants trained: a train.toml, or
// a command line as torchrun takes it.
//
// Both end as a Job, in which every default is filled in and every path that
// gpurun itself opens is absolute. Nothing is expanded in the words that the
// training script gets. A train.toml is judged as a whole: all its problems are
// reported at once, each with its line, its column and a caret.
//
// Prepare then answers every question about a Job before anything starts, in three
// steps that each return a new value: Inspect (where it would run), Resolve (how many
// ranks, which recipe), Read (the plan that its files and arguments stand for). A
// Prepared job does not change, and gives the command for any other plan.
package job

import (
	"slices"
	"time"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/model"
	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/strategy"
)

// A Kind is the kind of the first word of a job's command.
type Kind = commandline.CommandKind

// The kinds of command.
const (
	Script  = commandline.Script  // a Python file, run by the interpreter
	Module  = commandline.Module  // a Python module, run by the interpreter with -m
	Program = commandline.Program // another program, executed unchanged
)

// A Job is a command, its configuration and the policy for its failures.
type Job struct {
	// Path is the train.toml, absolute; empty where the job came from the
	// command line.
	Path string
	// Name is one path element: it names the folder of the job's runs.
	Name string
	// Workdir is absolute; the ranks run in it.
	Workdir string
	Kind    Kind
	// Argv is the script, module or program, then its arguments, as written.
	Argv []string
	// Through is what precedes them in the command of each rank.
	Through Through
	// Env is set for the ranks on top of the environment that gpurun runs in.
	Env map[string]string
	// Python is an absolute path, or a bare name to be found in PATH, or empty:
	// Interpreter discovers it.
	Python string
	// Recipe is "auto", "none", a recipe's name, or the absolute path of a
	// recipe file.
	Recipe string

	Launch LaunchSettings
	// Policy is what gpurun may do to get the job trained, but for Restarts, which are
	// Launch.MaxRestarts.
	Policy strategy.Policy
	// DeviceMemory is the ceiling of each rank in bytes, 0 for none.
	DeviceMemory int64
	// Knobs is the [knobs] table: string, int64, float64, bool, time.Time,
	// []any and map[string]any. It is nil where there is none.
	Knobs map[string]any
	// Resume has the user's own Latest (absolute), Args and Data.
	Resume recipes.Resume
	// Step is the pattern of a line that reports a step, empty for the recipe's.
	Step    string
	Notify  model.Notify
	Metrics model.Metrics

	// Warnings are sentences for people: what was asked for and has no effect.
	Warnings []string

	// notifyFrom is where the secrets of Notify are.
	notifyFrom   notifyFrom
	textFileHere bool // metrics.textfile is of this job, and not said for all
	// torchrun is the launcher that the command named, whose interpreter the
	// job would have had.
	torchrun string
	// nodes is what the command, or the train.toml, says of the nodes of the launch.
	nodes commandline.Nodes
	// named: the words of the command name its interpreter.
	named bool
	// origin is where the user wrote the words of Argv.
	origin origin
	// digests are the parts of the digest that are known before the configuration is: those
	// of the command and of the train.toml.
	digests [2]string
	// digested are the words that the digest counts in place of kind and Argv; nil for
	// those.
	digested []string
	// variables are the names of those that the command line has.
	variables []string
	// ranksTyped: the number of ranks stands among the digested words.
	ranksTyped bool
}

// LaunchSettings is how the ranks are started, in torchrun's words.
type LaunchSettings struct {
	// RankOptions are torchrun's; LogDir is absolute. Where Self is set, NprocPerNode is how
	// many ranks the job starts by itself.
	commandline.RankOptions
	// Auto is the meaning of "auto" as NprocPerNode.
	Auto Auto
	// Launcher would have started the ranks without gpurun: the one that was typed.
	Launcher commandline.RankStarter
	// Self says that the command is one process that starts its own ranks.
	Self bool
	// DataParallel is the number of data-parallel ranks, 0 for the world size.
	DataParallel int
	// HangTimeout is the silence after an out-of-memory traceback that means
	// that the rank hangs.
	HangTimeout time.Duration
	// Stalls says when a job that makes no step counts as one that hangs; nil: never.
	Stalls *strategy.StallRule
	// Preflight is PreflightAuto, PreflightOn or PreflightOff.
	Preflight string
	// Probe says that the Python hook is put into the ranks.
	Probe bool
	// Hooks says that the probe may change settings inside the process.
	Hooks bool
	// Snapshot says when the GPU allocator's snapshot is written: "oom", "always" with all
	// allocations recorded from the start, or "off".
	Snapshot string
	// OnNotice is what a notice means that the time ends: "auto", "stop" or "go-on", and
	// NoticeGrace how long the ranks train on where that time is not known.
	OnNotice    string
	NoticeGrace time.Duration
	// TTY is "auto", "always" or "never": whether a single rank gets a
	// pseudo-terminal.
	TTY string
	// LogLimit is the cap of a log of a rank, in bytes; 0: none.
	LogLimit int64
}

// Shown reports whether all that the first rank writes reaches the console.
func (l LaunchSettings) Shown() bool {
	return l.Redirects.For(0) == commandline.NoStd && (l.LocalRanksFilter == nil || slices.Contains(l.LocalRanksFilter, 0))
}

// defaults is a job about which nothing is known.
func defaults() *Job {
	j := &Job{
		Recipe: "auto",
		Launch: LaunchSettings{
			RankOptions: commandline.DefaultRankOptions(),
			Auto:        AutoScript,
		},
		Notify: model.Notify{Style: notifyStyles[0], On: notifyEvents, Timeout: defaultNotifyTimeout},
	}
	r := reader{root: defaultsOf(), job: j}
	for _, s := range Sections {
		r.readKeys(s.Name)
	}
	return j
}
