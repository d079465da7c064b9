package node

import (
	"context"
	"os"
	"time"

	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/launcher/ranks"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/strategy"
)

// Options are what a node needs of the job and the run. They are the same for all attempts.
type Options struct {
	// -
	Run string
	// Ranks is the number of processes to start.
	Ranks int
	// Plain: the job is one process that starts its own ranks, if any, and gets no rank, world or port.
	Plain bool
	// Launcher: that process starts ranks itself. Like torchrun, gpurun passes it the name of a file for the
	// error of a rank.
	Launcher bool
	// Argv turns the attempt's command into the command of one rank. It adds the interpreter, and a
	// launcher's options for the local rank.
	Argv func(words []string, local int) []string
	// Env is the environment of the ranks: the inherited one, with the job's own variables on top.
	Env commandline.Environ
	// Numbers maps further variables that number a rank to torchrun's variable with the same value.
	Numbers map[string]string
	// Workdir is the ranks' working directory.
	Workdir string
	// Accelerator is what the job trains on, "cuda" or "cpu".
	Accelerator string
	// DataLimit is RLIMIT_DATA of each rank in bytes, 0 for none.
	DataLimit int64
	// MasterPort is the port that the user chose, 0 for a new one in each attempt.
	MasterPort int
	// RunID is the rendezvous id that the user chose, empty for a new one in each attempt.
	RunID string
	// MaxRestarts is passed to the ranks, as torchrun does.
	MaxRestarts int
	// Hook puts gpurun's hook into the ranks' Python. Questions is how long a failed process may be asked
	// before it ends, 0 for not at all.
	Hook      bool
	Questions time.Duration
	// Snapshot is when the GPU allocator's snapshot is written: "oom", "always" or "off".
	Snapshot string
	// Stalls: stacks of the ranks may be requested.
	Stalls bool
	// Each rank runs Script, an absolute path, or Module, possibly through wrappers. Both are empty if that
	// is not known.
	Script, Module string
	// Guards are for the first attempt; nil: it starts its own.
	Guards *ranks.Guards
	// NVMePath is the folder for data that a plan offloads to NVMe, empty for none.
	NVMePath string
	// Grace is the time that ranks have after a stop by the user, and that processes have which ranks leave
	// behind when they end well.
	Grace time.Duration
	// Early is the delay of the warning about a rank that ended while others run; 0 means 30 s.
	Early  time.Duration
	Output Console
	// Alarms emits the driver's critical events on the job's devices as facts until stop is called; in the
	// first attempt, also other processes' memory on these devices. It is called right before the ranks
	// start, and does not wait. May be nil.
	Alarms func(ctx context.Context, emit func(strategy.Fact)) (stop func())
	// Preflight tries the job's devices before the first attempt, and returns the facts that prevent the
	// start. It ends with ctx. May be nil.
	Preflight func(ctx context.Context, warn func(text string)) []strategy.Fact
	// Used returns the memory of a process on the job's devices as the driver reports it, in bytes, 0 if not
	// known. May be nil.
	Used func(pid int) int64
	// Samples receives the samples of an attempt's ranks once a second, and once more when they are gone. It
	// must not wait. May be nil.
	Samples func(attempt int, samples []strategy.Sample)
	// Devices reads the memory of the job's devices until stop is called. now returns the latest values
	// without waiting for the driver, cuda:k at index k. May be nil.
	Devices func(context.Context) (now func() []ranks.Device, stop func())
	// Growing looks at the job's checkpoints, and returns a function that reports whether they have grown
	// since. May be nil.
	Growing func(context.Context) (grown func(context.Context) bool)
	// UsedVariable returns the knobs that the used value of a variable sets to other values than the asked one;
	// may be nil.
	UsedVariable func(name, asked, used string) strategy.Plan
}

// A Console is the ranks' input, and the destinations of their output.
type Console struct {
	ranks.OutputOptions          // without the options of a single attempt
	Stdin               *os.File // read by rank 0
	// TTY is "always", "never" or "auto": a single rank gets a pseudo-terminal if the console is a terminal.
	TTY  string
	Mask *mask.Masker // of the job's secrets
}
