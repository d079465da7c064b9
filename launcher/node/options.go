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

// Options are what a node needs of the job and the run. They are the same for all attempts.
type Options struct {
	// Run is the run's name.
	Run string
	// Ranks is how many processes to start.
	Ranks int
	// Plain: the job is one process that starts its own ranks, if any, and gets no rank, world or port.
	Plain bool
	// Launcher: that process is a launcher of ranks. Like torchrun it gets the name of a file for the error
	// of a rank.
	Launcher bool
	// Argv makes the words of one rank from those of the attempt's command: it adds the interpreter, and a
	// launcher's options for the local rank.
	Argv func(words []string, local int) []string
	// Env is what the ranks inherit, the job's own variables on top.
	Env environ.Vars
	// Numbers are further variables that number a rank, each with torchrun's variable of the same value.
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
	// MaxRestarts is passed to the ranks, as by torchrun.
	MaxRestarts int
	// Probe puts gpurun's hook into the ranks' Python; Hooks lets it change settings there.
	Probe, Hooks bool
	// Snapshot is when the GPU allocator's snapshot is written: "oom", "always" or "off".
	Snapshot string
	// Stalls: stacks of the ranks may be requested.
	Stalls bool
	// Script, an absolute path, or Module is what each rank runs, also behind wrappers; both are empty
	// where that is not known.
	Script, Module string
	// NVMePath is the folder for what a plan offloads to NVMe, empty for none.
	NVMePath string
	// Grace is that of ranks after a user's stop, and of processes that they leave behind when they end well.
	Grace time.Duration
	// Early is the delay of the warning about a rank that ended while others run; 0 means 30 s, since ranks
	// of one job end within seconds of each other.
	Early  time.Duration
	Output Console
	// Alarms emits the driver's critical events on the job's devices as facts, and in the first attempt
	// other processes' memory on them, until stop is called; may be nil. It is called right before the
	// ranks are started, and does not wait.
	Alarms func(ctx context.Context, emit func(strategy.Fact)) (stop func())
	// Preflight tries the job's devices before the first attempt, and returns what forbids the start; may be
	// nil. It ends with ctx.
	Preflight func(ctx context.Context, warn func(text string)) []strategy.Fact
	// Used is the memory of a process on the job's devices by the driver's account, in bytes, 0 where it is
	// not known; may be nil.
	Used func(pid int) int64
	// Samples gets the samples of an attempt's ranks once a second, and once more when they are gone; may
	// be nil. It must not wait.
	Samples func(attempt int, samples []model.Sample)
	// Devices reads the memory of the job's devices until stop is called, cuda:k at k; now does not wait for
	// the driver. May be nil.
	Devices func(context.Context) (now func() []gpu.Device, stop func())
	// Growing looks at the job's checkpoints, and returns how to find out whether they have grown since; may
	// be nil.
	Growing func(context.Context) (grown func(context.Context) bool)
	// Settings reads the framework's settings outside its output; may be nil.
	Settings SettingsReader
}

// A Console is the ranks' input, and the destinations of their output.
type Console struct {
	output.Options          // except those of a single attempt
	Stdin          *os.File // read by rank 0
	// TTY is "always", "never", or "auto": a single rank gets a pseudo-terminal
	// where the console is a terminal.
	TTY string
}

// A SettingsReader finds the settings that the job's framework uses, apart from its output. Its methods are
// called from one goroutine at a time.
type SettingsReader interface {
	// Files are globs of files, relative to the working directory.
	Files() []string
	// InFile gives the settings in a file that matches a glob; none where the file is only half written.
	InFile(glob string, text []byte) []strategy.ObservedSetting
	// InVariable gives the knobs that the used value of an environment variable sets differently from the
	// asked one.
	InVariable(name, asked, used string) strategy.Plan
}
