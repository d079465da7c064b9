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
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/model"
	"github.com/gpurun/gpurun/strategy"
)

// A Kind says what the first word of a job's command is.
type Kind = commandline.Kind

// The kinds of command.
const (
	Script  = commandline.Script  // a Python file, run by the interpreter
	Module  = commandline.Module  // a Python module, run by the interpreter with -m
	Program = commandline.Program // a program of its own, run as it is
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
	// Through is what stands before them in the command of each rank.
	Through Through
	// Env is set for the ranks on top of the environment that gpurun runs in.
	Env map[string]string
	// Python is an absolute path, or a bare name to be found in PATH, or empty:
	// Interpreter discovers it.
	Python string
	// Recipe is "auto", "none", a recipe's name, or the absolute path of a
	// recipe file.
	Recipe string

	Launch   Launch
	Recovery Recovery
	// NumericsSaid: the file, a flag or the user's configuration says in words which
	// numerics are allowed.
	NumericsSaid bool
	Limits       Limits
	// Knobs is the [knobs] table: string, int64, float64, bool, time.Time,
	// []any and map[string]any. It is nil where there is none.
	Knobs    map[string]any
	Resume   Resume
	Progress Progress
	Notify   model.Notify
	Metrics  Metrics

	// Warnings are sentences for people: what was asked for and has no effect.
	Warnings []string

	// notifyFrom is where the secrets of Notify stand.
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

// A Count is a number of ranks a node: "auto", "gpu", "cpu", or a whole number
// from 1.
type Count string

// Number returns the count where it is a number.
func (c Count) Number() (int, bool) {
	n, err := strconv.Atoi(string(c))
	return n, err == nil
}

// Launch is how the ranks are started, in torchrun's words.
type Launch struct {
	// NprocPerNode is how many ranks a node has. Where Self is set, it is how
	// many the job starts by itself.
	NprocPerNode Count
	// Auto is what "auto" means as NprocPerNode.
	Auto Auto
	// Launcher is who would have started the ranks without gpurun, where the command
	// was typed with a launcher other than torchrun; zero for none.
	Launcher Launcher
	// MasterPort is 0 for a free one in each attempt.
	MasterPort int
	// Self says that the command is one process that starts its own ranks.
	Self bool
	// DataParallel is the number of data-parallel ranks, 0 for the world size.
	DataParallel int
	// HangTimeout is the silence after an out-of-memory traceback that means
	// that the rank hangs.
	HangTimeout time.Duration
	// Stalls says when a job that makes no step counts as one that hangs; nil: never.
	Stalls *strategy.StallRule
	// Preflight says what is looked at before the first attempt.
	Preflight Preflight
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

	// MaxRestarts is torchrun's: restarts of the whole group for failures
	// other than memory.
	MaxRestarts int
	// LogDir is absolute, empty for none.
	LogDir string
	// Redirects are the streams that go to files only, Tee those that go to
	// files and to the console.
	Redirects Streams
	Tee       Streams
	// LocalRanksFilter are the local ranks whose output reaches the console;
	// nil for all.
	LocalRanksFilter []int
	// Role is ROLE_NAME and the prefix of console lines; "default" by default.
	Role string
	// RunID is what the user chose for TORCHELASTIC_RUN_ID, empty for a fresh
	// one in each attempt.
	RunID string
	// ShutdownTimeout is the grace between SIGTERM and SIGKILL.
	ShutdownTimeout time.Duration
	// LocalRankArg appends --local-rank=N to each rank's arguments, as
	// torch.distributed.launch does without --use-env.
	LocalRankArg bool
}

// Shown reports whether all that the first rank writes reaches the console.
func (l Launch) Shown() bool {
	return l.Redirects.For(0) == NoStd && (l.LocalRanksFilter == nil || slices.Contains(l.LocalRanksFilter, 0))
}

// Std is a set of standard streams, Streams chooses them by local rank.
type (
	Std     = commandline.Std
	Streams = commandline.Streams
)

// The sets of streams.
const (
	NoStd = commandline.NoStd
	Out   = commandline.Out
	Err   = commandline.Err
	Both  = commandline.Both
)

// Recovery is the policy: what gpurun may do to get the job trained.
type Recovery struct {
	Mode   string // "predict", "ladder" or "off"
	Prefer string // "exact", "speed" or "tree"
	// Climb lets a run go up to a faster plan, once, where there is room for it.
	Climb       bool
	MaxAttempts int    // from 1
	Numerics    string // "preserve", "mixed-precision" or "any"
	// Never names rungs and knobs to leave alone.
	Never []string
	// NVMePath is absolute, empty for none.
	NVMePath         string
	TransientRetries int
	// RestartFromZero is how much work may be repeated when there is no
	// checkpoint to resume from.
	RestartFromZero time.Duration
}

// Limits are ceilings that gpurun puts on each rank.
type Limits struct {
	// DeviceMemory is in bytes, 0 for no ceiling.
	DeviceMemory int64
}

// Resume says how the job goes on from a checkpoint. It is zero where the user
// did not say.
type Resume struct {
	// Latest is a pattern as filepath.Match takes it, absolute.
	Latest string
	// Args are added to the command; {latest} in them stands for the newest match.
	Args []string
	// Data says what becomes of the samples that were seen: "kept" where the job goes on
	// with the next one.
	Data string
}

// Progress says how the output of the job shows that it trains.
type Progress struct {
	// Step matches a line that reports a step; its first group is the step's
	// number. It is nil where the user did not say.
	Step *regexp.Regexp
}

// defaults is a job about which nothing has been said.
func defaults() *Job {
	j := &Job{
		Recipe: "auto",
		Launch: Launch{
			NprocPerNode:    "auto",
			Auto:            AutoScript,
			Preflight:       PreflightAuto,
			LogLimit:        DefaultLogLimit,
			Role:            "default",
			ShutdownTimeout: commandline.DefaultGrace,
		},
		Notify: model.Notify{Style: notifyStyles[0], On: notifyEvents, Timeout: defaultNotifyTimeout},
	}
	r := reader{root: defaultsOf(), job: j}
	for _, s := range Sections {
		r.readKeys(s.Name)
	}
	return j
}
