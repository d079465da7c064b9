package node

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/launcher/system"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/memory"
)

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
	// Settle waits until the memory of the devices is back at its level before attempt 0 (gpu.Baseline); nil
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
