package node

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher/host"
	"github.com/gpurun/gpurun/launcher/procfs"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/memory"
)

// WorldOptions are what a World has to know of the job and its machine.
type WorldOptions struct {
	// Accelerator is what the job trains on, "cuda" or "cpu", and BF16 whether it
	// computes in bfloat16.
	Accelerator string
	BF16        func(context.Context) bool
	// Node is where the ranks run.
	Node strategy.Node
	// Device is what each rank has to train in; nil where nobody knows.
	Device func(context.Context) memory.DeviceMemory
	// Devices waits for the devices' memory, nil where nobody can.
	Devices Settler
	// NVMePath is the folder for what a plan offloads to NVMe, empty for none.
	NVMePath string
	// Missing names, for each rung, the part that it needs and that is not there.
	Missing func() map[strategy.Rung]string
	// Deadline is by when the run has to be over, the zero time where nobody knows; nil:
	// nobody is asked.
	Deadline func(context.Context) time.Time
	// Checkpoint is the newest complete checkpoint of this run, and when it was written;
	// without one, none says why, where the user told where to look.
	Checkpoint func() (path string, written time.Time, none string)
}

// A Settler waits until the memory of devices is back at its level before attempt 0:
// package gpu's Baseline.
type Settler interface {
	Settle(ctx context.Context, bound time.Duration) []strategy.Fact
}

// A World answers what the launcher asks about its surroundings.
type World struct {
	opts    WorldOptions
	signals *Signals
	note    func(string) // journals a notice
}

// NewWorld makes a world that knows of the notices that come to signals, and tells
// people through note. Both may be nil for one that is only asked for its inventory.
func NewWorld(o WorldOptions, signals *Signals, note func(string)) *World {
	return &World{opts: o, signals: signals, note: note}
}

// Inventory says what there is to work with now.
func (w *World) Inventory(ctx context.Context) strategy.Inventory {
	inv := strategy.Inventory{
		At: time.Now().UTC(), Accelerator: w.opts.Accelerator, BF16: w.opts.BF16(ctx), Node: w.opts.Node,
		Missing: w.opts.Missing(), NVMeFree: freeAt(w.opts.NVMePath),
	}
	inv.Checkpoint, inv.CheckpointWritten, inv.NoCheckpoint = w.opts.Checkpoint()
	if w.opts.Deadline != nil {
		inv.Deadline = w.opts.Deadline(ctx)
	}
	if m, err := host.This().Memory(); err == nil {
		inv.HostAvailable, inv.HostTotal = m.Available, m.Whole()
	}
	if w.opts.Device != nil {
		inv.Device = w.opts.Device(ctx)
		inv.Device.Host, inv.Device.NVMe = inv.HostAvailable, inv.NVMeFree
	}
	return inv
}

// Notice is the first signal that announced the end of the time, nil for none.
func (w *World) Notice() *strategy.Notice { return w.signals.notice() }

// Settle waits until the devices' memory is back at the level before attempt 0.
// Memory that somebody else has come to hold is told to people, and is evidence
// for the next attempt.
func (w *World) Settle(ctx context.Context, bound time.Duration) []strategy.Fact {
	if w.opts.Devices == nil {
		return nil
	}
	facts := w.opts.Devices.Settle(ctx, bound)
	if ctx.Err() != nil {
		return nil // what is held may be on its way back
	}
	for _, f := range facts {
		if f.Tenant != nil {
			w.note(tenancy(f.Tenant))
		}
	}
	return facts
}

// tenancy says that memory is held by others.
func tenancy(t *strategy.Tenant) string {
	return fmt.Sprintf("warning: %s of %s are in use, and not by this run%s", strategy.GiB(t.Bytes), t.Device, who(t.PIDs))
}

// who names processes as far as they can be seen from here: in a container, the
// driver's numbers are those of another namespace, and mean nobody or another.
func who(pids []int) string {
	var names []string
	for _, pid := range pids {
		stat, err := procfs.ReadStat(pid)
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
