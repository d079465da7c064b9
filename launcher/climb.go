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

// A climb is a speed-up: at each checkpoint that the ranks complete, gpurun looks whether to relaunch with a
// faster plan. The goroutine only waits and reads the inventory; the watch, which owns the evidence, decides.
type climb struct {
	launcher *Launcher
	history  []strategy.Attempt // before the attempt
	next     Next               // the attempt's assignment

	moments chan strategy.Inventory // at each checkpoint
	begun   bool
	early   int    // how often it looked, since steps were done again in place, without a checkpoint
	once    func() // looks at once
	end     context.CancelFunc
	looking sync.WaitGroup
}

func newClimb(l *Launcher, next Next) climb {
	return climb{launcher: l, next: next, moments: make(chan strategy.Inventory), end: func() {}}
}

// stop ends the goroutine, and waits for its end.
func (c *climb) stop() {
	c.end()
	c.looking.Wait()
}

// allowed reports whether the run may change to a faster plan.
func (c *climb) allowed() bool {
	if !c.launcher.Policy.Climb || c.launcher.Policy.Mode != strategy.Predict {
		return false
	}
	for _, a := range c.history {
		if a.Climb != nil {
			return false
		}
	}
	return true
}

// begin starts the goroutine that looks for checkpoints.
func (c *climb) begin(ctx context.Context) {
	ctx, c.end = context.WithCancel(ctx)
	c.begun = true
	if c.launcher.Checkpoints != nil {
		c.looking.Go(func() { c.look(ctx) })
	}
	c.once = func() {
		c.looking.Go(func() { c.send(ctx, "", time.Time{}) })
	}
}

// send sends the inventory with a checkpoint, empty for none. It reports false if ctx is done.
func (c *climb) send(ctx context.Context, checkpoint string, written time.Time) bool {
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
func (c *climb) look(ctx context.Context) {
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
	if w.stopped || m.Failed != "" || m.Steps == 0 || !w.climb.allowed() {
		return
	}
	if !w.climb.begun {
		w.climb.begin(ctx)
	}
	if m.Steps > 1 && w.climb.early < mostEarly && len(w.evidence.InPlace()) > 0 {
		w.climb.early++
		w.climb.once()
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
	now := attemptOf(w.effect.job, *w.evidence, strategy.Diagnosis{Cause: cause.None, Phase: cause.NoPhase, Rank: -1}, w.climb.next)
	ascent := w.launcher.climbs(w.launcher.Policy, w.launcher.Job, w.climb.history, now, inventory)
	if ascent.Decision.Relaunch {
		w.climbTo(now, ascent.Decision, inventory)
		return
	}
	if ascent.Proposal != "" {
		w.evidence.Kept = ascent.Refused
	}
	if !ascent.Later {
		w.climb.end()
	}
}

// climbTo stops the ranks for a faster plan.
func (w *watch) climbTo(now strategy.Attempt, d strategy.Decision, inventory strategy.Inventory) {
	w.climb.end()
	if err := w.launcher.Store.Append(Climbed{Attempt: now, Decision: d, Inventory: inventory}); err != nil {
		w.failed = errors.Join(w.failed, err) // without a journaled decision nothing is changed
		return
	}
	w.evidence.Climb, w.evidence.Kept = &d, ""
	w.stop(int(syscall.SIGTERM), w.launcher.Graces.User)
}

// climbs calls strategy.Climb, or the test's replacement.
func (l *Launcher) climbs(p strategy.Policy, j strategy.Job, history []strategy.Attempt, now strategy.Attempt, inv strategy.Inventory) strategy.Ascent {
	if l.decideClimb != nil {
		return l.decideClimb(p, j, history, now, inv)
	}
	return strategy.Climb(p, j, history, now, inv)
}
