package launcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// attempt launches all ranks with one plan, watches them to their end, and
// returns what was seen. The journal knows of it before the first rank runs.
func (l *Launcher) attempt(ctx context.Context, next Next) (strategy.Evidence, error) {
	evidence := strategy.Evidence{
		Attempt: next.N, Plan: next.Plan, Ranks: l.Job.Ranks, Facts: next.Facts,
		Accelerator: l.World.Inventory(ctx).Accelerator, HangTimeout: strategy.Seconds(l.HangTimeout),
	}
	dir, err := l.Store.Prepare(next.N)
	if err != nil {
		return evidence, err
	}
	command, err := l.Recipe.Apply(next.Plan, next.Checkpoint, dir)
	if err != nil {
		return evidence, fmt.Errorf("apply the plan of attempt %d: %w", next.N, err)
	}
	started := Started{N: next.N, Plan: next.Plan, Rung: next.Rung, Checkpoint: next.Checkpoint, Command: command, Dir: dir, Diff: command.Diff}
	if err := l.Store.Append(started); err != nil {
		return evidence, err
	}
	if err := l.Store.Write(dir, next.Plan, command); err != nil {
		return evidence, err
	}
	evidence.Started = time.Now()
	running, err := l.Starter.Start(ctx, Launch{N: next.N, Dir: dir, Command: command, Plan: next.Plan})
	if err != nil {
		return evidence, fmt.Errorf("start attempt %d: %w", next.N, err)
	}
	err = newWatch(l, running, next, &evidence).run(ctx)
	evidence.Ended = time.Now()
	return evidence, errors.Join(err, l.Store.Append(Ended{Evidence: evidence}))
}

// settle waits until the devices are free again, and for at least after; who
// else holds memory is evidence for the next attempt.
func (l *Launcher) settle(ctx context.Context, after time.Duration) []strategy.Fact {
	if after > 0 {
		select {
		case <-time.After(after):
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil || l.World.Notice() != "" {
		return nil
	}
	return l.World.Settle(ctx, settleBound)
}

// called reports whether a signal forbids the relaunch that was decided, and how
// the run ends then.
func (l *Launcher) called(ctx context.Context, next strategy.Decision) (strategy.Decision, bool) {
	if !next.Relaunch {
		return next, false
	}
	if signal := signalled(ctx); signal != 0 {
		return strategy.Interrupted(signal), true
	}
	if notice := l.World.Notice(); notice != "" {
		return strategy.Announced(notice, next), true
	}
	return next, false
}
