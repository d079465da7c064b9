package launcher

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"time"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// A speedup is a relaunch with a faster plan: at each checkpoint that the ranks complete, gpurun looks whether to
// relaunch with a faster plan. The goroutine only waits and reads the inventory; the watch, which owns the evidence,
// decides.
type speedup struct {
	launcher *Launcher
	history  []strategy.Attempt // before the attempt
	next     Next               // the attempt's assignment

	moments chan strategy.Inventory // at each checkpoint
	begun   bool
	early   int                 // how often it looked, since steps were done again in place, without a checkpoint
	once    func(time.Duration) // looks once, after a time
	end     context.CancelFunc
	looking sync.WaitGroup
}

func newSpeedup(l *Launcher, next Next) speedup {
	return speedup{launcher: l, next: next, moments: make(chan strategy.Inventory), end: func() {}}
}

// stop ends the goroutine, and waits for its end.
func (c *speedup) stop() {
	c.end()
	c.looking.Wait()
}

// allowed reports whether the run may change to a faster plan, or back from one that is slower.
func (c *speedup) allowed() bool {
	if !c.launcher.Policy.Speedup || c.launcher.Policy.Mode != strategy.Predict {
		return false
	}
	for i, a := range c.history {
		if a.Speedup != nil && i < len(c.history)-1 {
			return false
		}
	}
	return true
}

// begin starts the goroutine that looks for checkpoints.
func (c *speedup) begin(ctx context.Context) {
	ctx, c.end = context.WithCancel(ctx)
	c.begun = true
	if c.launcher.Checkpoints != nil {
		c.looking.Go(func() { c.look(ctx) })
	}
	c.once = func(after time.Duration) {
		c.looking.Go(func() {
			select {
			case <-time.After(after):
				c.send(ctx, "", time.Time{})
			case <-ctx.Done():
			}
		})
	}
}

// send sends the inventory with a checkpoint, empty for none. It reports false if ctx is done.
func (c *speedup) send(ctx context.Context, checkpoint string, written time.Time) bool {
	inventory := c.launcher.World.Inventory(ctx)
	if c.launcher.Checkpoints != nil {
		inventory.Deadline = c.launcher.Checkpoints.Deadline(ctx)
	}
	inventory.Checkpoint, inventory.CheckpointWritten = checkpoint, written
	select {
	case c.moments <- inventory:
		return true
	case <-ctx.Done():
		return false
	}
}

// look sends the inventory, now and at each checkpoint, until ctx is done.
func (c *speedup) look(ctx context.Context) {
	since := time.Now() // ignore checkpoints of earlier attempts
	for path := ""; ; {
		written := since
		if path == "" {
			written = time.Time{}
		}
		if !c.send(ctx, path, written) {
			return
		}
		if path != "" {
			since = time.Now()
		}
		var found bool
		if path, found = c.launcher.Checkpoints.Saved(ctx, since); !found {
			return
		}
	}
}

// mostEarly bounds how often gpurun looks for a faster plan before there is a checkpoint: processes report a few
// times.
const mostEarly = 8

// measured starts to look for checkpoints once a process has reported its first steps. If steps were done again in
// place, it also looks at once, when the processes have measured enough.
func (w *watch) measured(ctx context.Context, f strategy.Fact) {
	m := f.Memory()
	if w.stopped || m.Failed != "" || m.Steps == 0 || !w.speedup.allowed() {
		return
	}
	if !w.speedup.begun {
		w.speedup.begin(ctx)
	}
	if m.Steps > 1 && w.speedup.early < mostEarly && len(w.evidence.InPlace()) > 0 {
		w.speedup.early++
		w.speedup.once(0)
	}
}

// ascend changes to a faster plan if that is worth it now. It journals the decision before it stops the
// ranks.
func (w *watch) ascend(inventory strategy.Inventory) {
	if w.stopped || w.launcher.World.Notice() != nil {
		return
	}
	for _, f := range w.progress() {
		w.evidence.Add(f)
	}
	now := attemptOf(w.effect.job, *w.evidence, strategy.Diagnosis{Cause: cause.None, Phase: cause.NoPhase, Rank: -1},
		w.speedup.next)
	speedup := w.launcher.findSpeedup(w.launcher.Policy, w.launcher.Job, w.speedup.history, now, inventory)
	if speedup.Decision.Relaunch {
		w.speedupTo(now, speedup.Decision, inventory)
		return
	}
	if speedup.Proposal != "" {
		w.evidence.Kept = speedup.Refused
	}
	if wait := speedup.Again - now.Stepping.For.Duration(); speedup.Again > 0 && w.speedup.early < mostEarly {
		w.speedup.early++
		w.speedup.once(max(wait, time.Second))
	}
	if !speedup.Later {
		w.speedup.end()
	}
}

// speedupTo stops the ranks for a faster plan.
func (w *watch) speedupTo(now strategy.Attempt, d strategy.Decision, inventory strategy.Inventory) {
	w.speedup.end()
	if err := w.launcher.Store.Append(SpedUp{Attempt: now, Decision: d, Inventory: inventory}); err != nil {
		w.failed = errors.Join(w.failed, err) // without a journaled decision nothing is changed
		return
	}
	w.evidence.Speedup, w.evidence.Kept = &d, ""
	w.stop(int(syscall.SIGTERM), w.launcher.Graces.User)
}

// findSpeedup calls strategy.FindSpeedup, or the test's replacement.
func (l *Launcher) findSpeedup(p strategy.Policy, j strategy.Job, history []strategy.Attempt, now strategy.Attempt,
	inv strategy.Inventory) strategy.Speedup {
	if l.decideSpeedup != nil {
		return l.decideSpeedup(p, j, history, now, inv)
	}
	return strategy.FindSpeedup(p, j, history, now, inv)
}
