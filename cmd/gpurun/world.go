package main

import (
	"context"
	"os/exec"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/gpu"
	"github.com/gpurun/gpurun/launcher/host"
	"github.com/gpurun/gpurun/strategy"
)

// world answers what the launcher asks about its surroundings.
type world struct {
	p        *prepared
	began    time.Time    // of attempt 0: checkpoints older than that are not this run's
	baseline []gpu.Device // the devices before attempt 0
}

// Inventory says what there is to work with now.
func (w *world) Inventory(context.Context) strategy.Inventory {
	inv := strategy.Inventory{
		At: time.Now().UTC(), Accelerator: w.p.accelerator(), BF16: w.p.bf16(),
		Missing: w.missing(), Checkpoint: w.checkpoint(),
	}
	if m, err := host.This().Memory(); err == nil {
		inv.HostAvailable = m.Available
	}
	return inv
}

// bf16 reports whether every device computes in bfloat16; a CPU does, in PyTorch.
func (p *prepared) bf16() bool {
	if p.accelerator() == "cpu" {
		return true
	}
	for _, d := range p.gpus.Devices {
		if !d.BF16() {
			return false
		}
	}
	return len(p.gpus.Devices) > 0
}

// missing names the parts that a rung needs and that are not there.
func (w *world) missing() map[strategy.Rung]string {
	if _, shards := w.p.knobs[strategy.OffloadOptimizer]; !shards || w.p.job.Kind == "program" {
		return nil
	}
	// DeepSpeed builds its Adam for the CPU when it is first used.
	for _, compiler := range []string{"c++", "g++", "clang++"} {
		if _, err := exec.LookPath(compiler); err == nil {
			return nil
		}
	}
	reason := "DeepSpeed builds its CPU optimizer when it is first used, and there is no C++ compiler"
	return map[strategy.Rung]string{strategy.RungOffloadOptimizer: reason, strategy.RungOffloadParam: reason, strategy.RungNVMe: reason}
}

// checkpoint is the newest complete checkpoint of this run, empty without one.
func (w *world) checkpoint() string {
	glob, ok := w.p.recipe.ResumeGlob(w.p.command)
	if !ok {
		return ""
	}
	newest, err := launcher.NewestCheckpoint(w.p.job.Workdir, glob, w.began)
	if err != nil {
		return "" // an unreadable checkpoint is none to start from
	}
	return newest
}

// Settle waits until the devices' memory is back at the level before attempt 0.
func (w *world) Settle(ctx context.Context, bound time.Duration) []strategy.Fact {
	if w.p.nvml == nil || len(w.baseline) == 0 {
		return nil
	}
	return w.p.nvml.Settle(ctx, w.baseline, bound)
}
