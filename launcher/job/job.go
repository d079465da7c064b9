// Package job reads and validates the user's job: a train.toml, or a command line in torchrun's form.
//
// Both become a Job, in which all defaults are set, and all paths that gpurun itself opens are absolute. The
// arguments of the training script are not expanded. All problems of a train.toml are reported at once, each
// with its line, its column and a caret.
//
// Prepare then finds out everything about a Job before any rank starts, in three steps that each return a new
// value: Inspect (where it would run), Resolve (how many ranks, which recipe), Read (the plan in its files
// and arguments). A Prepared job is immutable, and makes the command for any other plan.
package job

import (
	"time"

	"github.com/gpurun/gpurun/launcher/commandline"
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
	// Path is the absolute path of the train.toml; empty for a job from the command line.
	Path string
	// Name is the name of the folder of the job's runs, one path element.
	Name string
	// Workdir is absolute; the ranks run in it.
	Workdir string
	Kind    Kind
	// Argv has the script, module or program, and its arguments, as written.
	Argv []string
	// Through precedes Argv in the command of each rank.
	Through Through
	// Env is set for the ranks, on top of gpurun's environment.
	Env map[string]string
	// Python is an absolute path, or a name in PATH. If it is empty, gpurun finds the interpreter.
	Python string
	// Recipe is "auto", "none", a recipe's name, or the absolute path of a
	// recipe file.
	Recipe string

	Launch LaunchSettings
	// Policy is what gpurun may change, except Restarts, which is Launch.MaxRestarts.
	Policy strategy.Policy
	// DeviceMemory is the ceiling of each rank in bytes, 0 for none.
	DeviceMemory int64
	// Knobs is the [knobs] table: string, int64, float64, bool, time.Time, []any and map[string]any. It is
	// nil if there is none.
	Knobs map[string]any
	// Resume has the user's Latest (absolute), Args and Data.
	Resume recipes.Resume
	// Step is the pattern of a line that reports a step; empty for the recipe's pattern.
	Step    string
	Notify  strategy.Notify
	Metrics strategy.Metrics
	Fits    SharedFits

	// Warnings are messages about requests without effect.
	Warnings []string

	// notifyFrom has the places of the secrets of Notify.
	notifyFrom   notifyFrom
	textFileHere bool // metrics.textfile is set for this job, not for all jobs
	// torchrun is the launcher in the command. The job uses its interpreter.
	torchrun string
	// nodes has what the command, or the train.toml, says about the nodes of the launch.
	nodes commandline.Nodes
	// named: the words of the command name its interpreter.
	named bool
	// origin is the place where the user wrote the words of Argv.
	origin origin
	// digests are the parts of the digest for the command and the train.toml, which are known before the
	// configuration is.
	digests [2]string
	// digested are the words that the digest uses in place of kind and Argv; nil: it uses these.
	digested []string
	// variables are the names of the variables in the command line.
	variables []string
	// ranksTyped: the number of ranks is among the digested words.
	ranksTyped bool
	site       siteSettings
}

// SharedFits define where the users of a site share what their jobs needed.
type SharedFits struct {
	Shared string // an absolute path, empty for none
	Trust  string // TrustOwn or TrustGroup
}

// The values of fits.trust: whose plans a job may start with.
const (
	TrustOwn   = "own"
	TrustGroup = "group"
)

// LaunchSettings define how the ranks are started, in torchrun's terms.
type LaunchSettings struct {
	// RankOptions are torchrun's options. LogDir is absolute. If Self is set, NprocPerNode is the number of
	// ranks that the job itself starts.
	commandline.RankOptions
	// Auto is the meaning of "auto" as NprocPerNode.
	Auto Auto
	// Launcher is the typed launcher, which would start the ranks without gpurun.
	Launcher commandline.RankStarter
	// Self: the command is one process that starts its own ranks.
	Self bool
	// DataParallel is the number of data-parallel ranks, 0 means the world size.
	DataParallel int
	// HangTimeout bounds the silence of a rank after an out-of-memory traceback: after that, it counts as
	// hanging.
	HangTimeout time.Duration
	// Stalls defines when a job that makes no steps counts as hanging; nil: never.
	Stalls *strategy.StallRule
	// Preflight is PreflightAuto, PreflightOn or PreflightOff.
	Preflight string
	// Probe and Hooks: gpurun's hook is loaded into the ranks' Python, see Job.LoadsHook.
	Probe, Hooks bool
	// Snapshot is when the GPU allocator's snapshot is written: "oom", "always" (all allocations are recorded
	// from the start), or "off".
	Snapshot string
	// OnNotice is the effect of a notice that the job's time ends: "auto", "stop" or "go-on". NoticeGrace is
	// how long the ranks continue to train if the end is not known.
	OnNotice    string
	NoticeGrace time.Duration
	// TTY is "auto", "always" or "never": whether a single rank gets a
	// pseudo-terminal.
	TTY string
	// LogLimit bounds each log of a rank, in bytes; 0 for none.
	LogLimit int64
}

// LoadsHook reports whether gpurun's hook is loaded into the ranks' Python.
func (j *Job) LoadsHook() bool {
	return j.Launch.Probe && j.Launch.Hooks && j.Policy.Mode != strategy.Off
}

// defaults returns a job with all defaults and no command.
func defaults() *Job {
	j := &Job{
		Recipe: "auto",
		Launch: LaunchSettings{
			RankOptions: commandline.DefaultRankOptions(),
			Auto:        AutoScript,
		},
		Notify: strategy.Notify{On: notifyEvents, Timeout: defaultNotifyTimeout},
	}
	r := reader{root: defaultsOf(), job: j}
	for _, s := range allSections() {
		r.readKeys(s.Name)
	}
	return j
}
