// Package node runs one node's ranks from start to sweep: it joins packages ranks
// and hook into what package launcher consumes.
package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/hook"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/launcher/system"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/memory"
)

// startBound bounds the start of the ranks, which takes milliseconds unless a file system hangs.
const startBound = time.Minute

// A Node is the launcher's Starter: it starts the ranks of this machine.
type Node struct {
	opts    Options
	token   string // makes the marker of this process's ranks unique
	log     *EventLog
	signals *Signals
	ports   map[int]bool    // ports that earlier attempts of this run used
	checked bool            // the devices were tried before the first attempt
	probe   *hook.Installed // the latest, nil for none
}

// New makes a node. It passes its running ranks to signals, and writes notices to log.
func New(o Options, log *EventLog, signals *Signals) *Node {
	if o.Early == 0 {
		o.Early = earlyBound
	}
	if o.Plain {
		o.Ranks = 1
	}
	if o.Alarms == nil {
		o.Alarms = func(context.Context, func(strategy.Fact)) func() { return func() {} }
	}
	if o.Output.Screen != nil {
		signals.shows(o.Output.Screen)
	}
	return &Node{opts: o, token: rand.Text(), log: log, signals: signals, ports: map[int]bool{}}
}

// Start starts all ranks of one attempt. An error has a hint and an exit code: 75 if waiting helps, 74 if the
// system refuses the attempt's folder, 2 if the job requests something that it cannot have. The error is a
// *launcher.Signal if a signal stopped gpurun meanwhile.
func (n *Node) Start(ctx context.Context, l launcher.Launch) (launcher.Attempt, error) {
	unfit, err := n.preflight(ctx)
	switch {
	case err != nil:
		return nil, err
	case len(unfit) > 0:
		return ground(unfit), nil
	}
	a, err := n.open(ctx, l)
	if err != nil {
		return nil, cannotStart(err)
	}
	guards := n.opts.Guards.Unused() // they initialise while the hook's files are written
	processes := n.ranks(a, l)
	a.saving = newSavingWatch(n.opts.Growing, a.emit)
	a.stopProbe, a.lookAtProbe = hook.Watch(l.Dir, a.ranks(),
		withOutside(n.opts.Used, a.measured.tap(a.repeats(a.saving.see))), a.stepped)
	a.programs = n.openPrograms(a, l)
	a.stopAlarms = n.opts.Alarms(context.WithoutCancel(ctx), a.alarm)
	// A signal that comes while ranks start stops them with their grace, like a later one, since the first
	// ranks may already work.
	starting, started := context.WithTimeout(context.WithoutCancel(ctx), startBound)
	defer started()
	n.signals.begin(n.opts.Grace)
	a.ends = a.openEnds()
	a.group, err = guards.Start(starting, processes, ranks.StartOptions{
		Marker: fmt.Sprintf("%s.%s.%d", n.opts.Run, n.token, l.N), DataLimit: n.opts.DataLimit, Ends: a.ends,
		Warn: func(text string) { n.log.Note("warning: " + text) },
	})
	a.out.Started()
	if err != nil {
		n.signals.leave()
		return nil, cannotStart(a.abandon(ctx, err))
	}
	a.programs.Follow(a.group.PIDs()[a.meeting.Offset])
	n.signals.adopt(a)
	a.asked = l.Command.Env
	a.startSampling()
	go a.collect()
	return a, nil
}

// open makes an attempt with everything that its ranks need, but starts no rank.
func (n *Node) open(ctx context.Context, l launcher.Launch) (*attempt, error) {
	a := &attempt{node: n, n: l.N, meeting: l.Meeting, began: time.Now(), facts: make(chan strategy.Fact, 64), dir: l.Dir,
		local: n.opts.Ranks, ended: map[int]bool{}, well: map[int]bool{}, steps: map[int]hook.OptimizerStep{}, reported: map[int]time.Time{}, again: map[int][]strategy.InPlace{}}
	var err error
	if a.swap, err = n.openSwap(l); err != nil {
		return nil, err
	}
	if a.out, err = n.openOutput(a); err != nil {
		err = fmt.Errorf("open the ranks' output: %w", err)
		if !isShort(err) {
			err = launcher.RunDirError(l.Dir, err)
		}
		return nil, errors.Join(err, a.swap.close())
	}
	a.counters = ranks.ThisMachine().OpenCounters()
	a.lingering, a.linger = context.WithCancel(context.WithoutCancel(ctx))
	return a, nil
}

// abandon releases the resources of an attempt whose ranks could not be started.
func (a *attempt) abandon(ctx context.Context, err error) error {
	a.linger()
	a.closeEnds()
	var draining sync.WaitGroup
	draining.Go(func() { drain(a.facts) })
	a.programs.Stop()
	a.stopProbe()
	a.saving.stop()
	a.stopAlarms()
	err = errors.Join(err, a.out.Wait(ctx), a.swap.close())
	close(a.facts)
	draining.Wait()
	return err
}

func drain(facts <-chan strategy.Fact) {
	for range facts {
	}
}

// Options are what a node needs of the job and the run. They are the same for all attempts.
type Options struct {
	// Run is the name of the run.
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

// WorldOptions are what a LocalWorld needs of the job and its machine.
type WorldOptions struct {
	// Accelerator is what the job trains on, "cuda" or "cpu", and BF16 whether it
	// computes in bfloat16.
	Accelerator string
	BF16        func(context.Context) bool
	// Node is the machine on which the ranks run.
	Node strategy.Node
	// Device returns the memory of each rank; nil if not known.
	Device func(context.Context) memory.DeviceMemory
	// Settle waits until the memory of the devices is back at its level before attempt 0 (ranks.DeviceBaseline); nil
	// if gpurun cannot read that.
	Settle func(ctx context.Context, bound time.Duration) []strategy.Fact
	// NVMePath is the folder for data that a plan offloads to NVMe, empty for none.
	NVMePath string
	// Missing names, for each remedy, the required part that is not installed.
	Missing func() map[strategy.Remedy]string
	// Deadline returns the time by which the run must be over, zero if not known. May be nil.
	Deadline func(context.Context) time.Time
	// Checkpoint returns the newest complete checkpoint of this run, and when it was written. If there is
	// none and the user named a place for it, none is the reason.
	Checkpoint func() (path string, written time.Time, none string)
}

// A LocalWorld is the launcher's World on this machine.
type LocalWorld struct {
	opts    WorldOptions
	signals *Signals
	note    func(string) // journals a notice
}

// NewWorld makes a world. Its notices come from signals, and note journals messages to the user. Both may be
// nil if only the inventory is needed.
func NewWorld(o WorldOptions, signals *Signals, note func(string)) *LocalWorld {
	return &LocalWorld{opts: o, signals: signals, note: note}
}

// Inventory returns the resources available now.
func (w *LocalWorld) Inventory(ctx context.Context) strategy.Inventory {
	inv := strategy.Inventory{
		At: time.Now().UTC(), Accelerator: w.opts.Accelerator, BF16: w.opts.BF16(ctx), Node: w.opts.Node,
		Missing: w.opts.Missing(), NVMeFree: freeAt(w.opts.NVMePath),
	}
	inv.Checkpoint, inv.CheckpointWritten, inv.NoCheckpoint = w.opts.Checkpoint()
	if w.opts.Deadline != nil {
		inv.Deadline = w.opts.Deadline(ctx)
	}
	if m, err := ranks.ThisMachine().Memory(); err == nil {
		inv.HostAvailable, inv.HostTotal = m.Available, m.Whole()
	}
	if w.opts.Device != nil {
		inv.Device = w.opts.Device(ctx)
		inv.Device.Host, inv.Device.NVMe = inv.HostAvailable, inv.NVMeFree
	}
	return inv
}

// Notice returns the first signal that announced the end of the job's time, nil for none.
func (w *LocalWorld) Notice() *strategy.Notice { return w.signals.notice() }

// Settle waits until the devices' memory is back at the level before attempt 0. It notes memory that another
// process has allocated, and returns it as evidence for the next attempt.
func (w *LocalWorld) Settle(ctx context.Context, bound time.Duration) []strategy.Fact {
	if w.opts.Settle == nil {
		return nil
	}
	facts := w.opts.Settle(ctx, bound)
	if ctx.Err() != nil {
		return nil // the memory may still be freed
	}
	for _, f := range facts {
		if strategy.As[*strategy.Tenant](f) != nil {
			w.note(tenancy(strategy.As[*strategy.Tenant](f)))
		}
	}
	return facts
}

// tenancy returns the warning about other processes' memory.
func tenancy(t *strategy.Tenant) string {
	return fmt.Sprintf("warning: %s of %s are in use, and not by this run%s", strategy.GiB(t.Bytes), t.Device, who(t.PIDs))
}

// who names the processes that are visible here: in a container, the driver reports pids of another
// namespace.
func who(pids []int) string {
	var names []string
	for _, pid := range pids {
		stat, err := system.ReadStat(pid)
		if err != nil {
			names = append(names, fmt.Sprintf("process %d", pid))
			continue
		}
		names = append(names, fmt.Sprintf("process %d, %s", pid, stat.Name()))
	}
	if len(names) == 0 {
		return ""
	}
	return " (" + strings.Join(names, "; ") + ")"
}

// portBound is how long the port that the user chose may stay busy, since the last attempt's rank 0 has just
// ended.
const portBound = 3 * time.Second

// portTries bounds the search for a port that no earlier attempt used. Each try keeps its port open, so that
// the kernel gives another one every time.
const portTries = 100

// Port returns the rendezvous port of an attempt: the one that the user chose, or a free one that no earlier
// attempt used; 0 if there is no rendezvous. Errors are like those of Start.
func (n *Node) Port(ctx context.Context, attempt int) (int, error) {
	if n.opts.Plain {
		return 0, nil // one process needs none
	}
	port, err := n.port(ctx, attempt)
	return port, cannotStart(err)
}

func (n *Node) port(ctx context.Context, attempt int) (int, error) {
	fixed := n.opts.MasterPort
	if fixed == 0 {
		return n.newPort()
	}
	ctx, cancel := context.WithTimeout(ctx, portBound)
	defer cancel()
	for {
		err := listenOn(":" + strconv.Itoa(fixed))
		if err == nil {
			return fixed, nil
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			return 0, fmt.Errorf("use launch.master_port = %d: %w", fixed, err)
		}
		select {
		case <-time.After(portBound / 30):
			continue
		case <-ctx.Done():
		}
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return 0, context.Cause(ctx)
		}
		return 0, portBusy(fixed, attempt)
	}
}

// portBusy is the error of a busy port. In the first attempt its hint is to omit the port; later, waiting may
// help.
func portBusy(port, attempt int) error {
	err := errext.Errorf("leave master_port out: then each attempt gets a port that is free",
		"the port that launch.master_port fixes, %d, is in use by another process", port)
	if attempt > 0 {
		return errext.WithCode(err, strategy.CodeRetry)
	}
	return errext.WithCode(err, strategy.CodeUsage)
}

// newPort finds a free port that no earlier attempt used: a used one may still have connections.
func (n *Node) newPort() (int, error) {
	for range portTries {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, fmt.Errorf("find a free port: %w", err)
		}
		defer l.Close()
		port := l.Addr().(*net.TCPAddr).Port
		if !n.ports[port] {
			n.ports[port] = true
			return port, nil
		}
	}
	return 0, errext.WithCode(errext.Errorf("net.ipv4.ip_local_port_range has the range of ports",
		"find a free port: attempts of this run have had each of %d", portTries), strategy.CodeRetry)
}

func listenOn(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return l.Close()
}
