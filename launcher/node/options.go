package node

import (
	"context"
	"os"
	"time"

	"github.com/gpurun/gpurun/launcher/environ"
	"github.com/gpurun/gpurun/launcher/gpu"
	"github.com/gpurun/gpurun/launcher/output"
	"github.com/gpurun/gpurun/model"
	"github.com/gpurun/gpurun/strategy"
)

// Options are what a node has to know of the job whose ranks it starts, and of the
// run. They are the same for all attempts.
type Options struct {
	// Run is the run's name.
	Run string
	// Ranks is how many processes to start.
	Ranks int
	// Plain says that the job is one process that starts its own ranks, if any: it is
	// given no rank, no world and no port.
	Plain bool
	// Launcher says, beside Plain, that the process is a launcher of ranks: like
	// torchrun it is told in which file its parent looks for the error of a rank.
	Launcher bool
	// Argv gives the words of one rank from those of the attempt's command: with the
	// interpreter before them, and what a launcher adds for the local rank.
	Argv func(words []string, local int) []string
	// Env is what the ranks inherit, the job's own variables on top.
	Env environ.Vars
	// Numbers are further variables that number a rank, each with torchrun's variable that
	// has its value.
	Numbers map[string]string
	// Workdir is the ranks' working directory.
	Workdir string
	// Accelerator is what the job trains on, "cuda" or "cpu".
	Accelerator string
	// DataLimit is RLIMIT_DATA of each rank in bytes, 0 for none.
	DataLimit int64
	// MasterPort is the port that the user fixed, 0 for a new one in each attempt.
	MasterPort int
	// RunID is the rendezvous id that the user fixed, empty for a new one in each attempt.
	RunID string
	// MaxRestarts is told to the ranks, as torchrun does.
	MaxRestarts int
	// Probe puts gpurun's hook into the ranks' Python; Hooks lets it change settings there.
	Probe, Hooks bool
	// Snapshot says when the GPU allocator's snapshot is written: "oom", "always" or "off".
	Snapshot string
	// Stalls says that the ranks may be asked where they are.
	Stalls bool
	// Script, an absolute path, or Module is what each rank runs, also behind wrappers;
	// both are empty where that is not known.
	Script, Module string
	// NVMePath is the folder for what a plan offloads to NVMe, empty for none.
	NVMePath string
	// Grace is what ranks get after a user's stop, and what they leave behind when
	// they end well.
	Grace time.Duration
	// Early is after which time people are told of a rank that ended while others go
	// on; 0 means 30 s, since ranks of one job end within seconds of each other.
	Early time.Duration
	// Output says what becomes of the ranks' output.
	Output Console
	// Alarms emits the driver's critical events on the job's devices as facts, and in the
	// first attempt what others hold on them, until stop is called; nil: nothing is
	// watched. It is called right before the ranks are started, and does not wait.
	Alarms func(ctx context.Context, emit func(strategy.Fact)) (stop func())
	// Preflight looks at the job's devices before the first attempt, and returns what keeps
	// it from being started; nil: nobody looks. It is cut short where ctx ends.
	Preflight func(ctx context.Context, warn func(text string)) []strategy.Fact
	// Used is what a process holds on the job's devices by the driver's account, in bytes,
	// 0 where that is not known; nil: nobody is asked.
	Used func(pid int) int64
	// Samples is told once a second what the ranks of an attempt let see of themselves, and
	// once more when they are gone; nil: nobody looks on. It must not wait.
	Samples func(attempt int, samples []model.Sample)
	// Devices reads the memory of the job's devices until stop is called, cuda:k at k; now
	// does not wait for the driver. Nil: nobody reads it.
	Devices func(context.Context) (now func() []gpu.Device, stop func())
	// Growing looks at the job's checkpoints, and returns how to find out whether they
	// have grown since; nil: nobody looks.
	Growing func(context.Context) (grown func(context.Context) bool)
	// Settings finds what the job's framework writes of its settings; nil: nothing.
	Settings Settings
}

// A Console says what the ranks read, and where their output goes.
type Console struct {
	output.Options          // but what differs from attempt to attempt
	Stdin          *os.File // read by rank 0
	// TTY is "always", "never", or "auto": a single rank gets a pseudo-terminal
	// where the console is a terminal.
	TTY string
}

// Settings knows where the job's framework writes which settings it uses, apart
// from its output. Its methods are called from one goroutine at a time.
type Settings interface {
	// Files are globs of files, relative to the working directory.
	Files() []string
	// InFile gives the settings that a file shows which one of the globs matched;
	// none where the file is only half written.
	InFile(glob string, text []byte) []strategy.ObservedSetting
	// InVariable gives the knobs that a variable of the environment sets otherwise
	// with the value used than with the value asked.
	InVariable(name, asked, used string) strategy.Plan
}
