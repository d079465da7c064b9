package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/gpu"
	"github.com/gpurun/gpurun/launcher/host"
	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/strategy"
)

// world answers what the launcher asks about its surroundings.
type world struct {
	p        *prepared
	began    time.Time    // of attempt 0: checkpoints older than that are not this run's
	devices  settler      // nil where there is no NVML
	baseline []gpu.Device // the devices before attempt 0
	desk     *desk
	note     func(string) // journals a notice
}

// A settler waits for the memory of devices: package gpu's NVML.
type settler interface {
	Settle(ctx context.Context, baseline []gpu.Device, bound time.Duration) []strategy.Fact
}

func newWorld(p *prepared, began time.Time, desk *desk, note func(string)) *world {
	w := &world{p: p, began: began, desk: desk, note: note}
	if p.nvml != nil {
		w.devices, w.baseline = p.nvml, slices.Clone(p.GPUs().Devices)
	}
	return w
}

// Inventory says what there is to work with now.
func (w *world) Inventory(context.Context) strategy.Inventory {
	inv := strategy.Inventory{
		At: time.Now().UTC(), Accelerator: w.p.Accelerator(), BF16: w.p.BF16(),
		Missing: w.p.Missing(), Checkpoint: w.checkpoint(), NVMeFree: freeOnNVMe(w.p.Job().Recovery.NVMePath),
	}
	if m, err := host.This().Memory(); err == nil {
		inv.HostAvailable = m.Available
	}
	return inv
}

// checkpoint is the newest complete checkpoint of this run, empty without one. The
// framework's own word for which it is comes first.
func (w *world) checkpoint() string {
	c := w.p.Checkpoints()
	if named := w.pointed(c); named != "" || c.Only {
		return named
	}
	if c.Glob == "" {
		return ""
	}
	newest, err := launcher.NewestCheckpoint(c.Dir, c.Glob, w.began, c.Needs...)
	if err != nil {
		return "" // an unreadable checkpoint is none to start from
	}
	return newest
}

// pointed is the checkpoint that the framework's pointer file names, if this run
// wrote both; empty where there is none.
func (w *world) pointed(c job.Checkpoints) string {
	if c.Pointer == "" {
		return ""
	}
	info, err := os.Stat(c.Pointer)
	if err != nil || info.ModTime().Before(w.began) {
		return ""
	}
	text, err := os.ReadFile(c.Pointer)
	if err != nil {
		return ""
	}
	meant, ok := c.Meant(string(text))
	if !ok {
		return ""
	}
	named, err := launcher.CompleteCheckpoint(c.Dir, meant, w.began, c.Needs...)
	if err != nil {
		return ""
	}
	return named
}

// Notice is the last signal that announced the end of the time.
func (w *world) Notice() string { return w.desk.notice() }

// Settle waits until the devices' memory is back at the level before attempt 0.
// Memory that somebody else has come to hold is told to people, and is evidence
// for the next attempt.
func (w *world) Settle(ctx context.Context, bound time.Duration) []strategy.Fact {
	return w.settle(ctx, w.baseline, bound)
}

// before says what is held on the devices before the first attempt.
func (w *world) before(ctx context.Context) []strategy.Fact {
	empty := slices.Clone(w.baseline)
	for i := range empty {
		empty[i].Used = 0
	}
	return w.settle(ctx, empty, 0)
}

func (w *world) settle(ctx context.Context, level []gpu.Device, bound time.Duration) []strategy.Fact {
	if w.devices == nil || len(level) == 0 {
		return nil
	}
	facts := w.devices.Settle(ctx, level, bound)
	if ctx.Err() != nil {
		return nil // what is held may be on its way back
	}
	for _, f := range facts {
		if f.Tenant != nil {
			w.note(fmt.Sprintf("warning: %s of %s are in use, and not by this run%s", strategy.GiB(f.Tenant.Bytes), f.Tenant.Device, who(f.Tenant.PIDs)))
		}
	}
	return facts
}

// who names processes as far as they can be seen from here: in a container, the
// driver's numbers are those of another namespace, and mean nobody or another.
func who(pids []int) string {
	var names []string
	for _, pid := range pids {
		comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if err != nil {
			names = append(names, fmt.Sprintf("process %d", pid))
			continue
		}
		names = append(names, fmt.Sprintf("process %d, %s", pid, strings.TrimSpace(string(comm))))
	}
	if len(names) == 0 {
		return ""
	}
	return " (" + strings.Join(names, "; ") + ")"
}
