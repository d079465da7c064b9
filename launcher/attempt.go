package launcher

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/model"
	"github.com/gpurun/gpurun/strategy"
)

// attempt launches all ranks with the plan that comes next, watches them to their
// end, and returns what was seen. The journal knows of it before the first rank runs.
// What was seen comes with an error, too, where the journal could not be written while
// ranks ran: that is no reason to stop them.
func (l *Launcher) attempt(ctx context.Context, state State) (strategy.Evidence, error) {
	next := state.Next
	evidence := strategy.Evidence{
		Attempt: next.N, Plan: next.Plan, Ranks: l.Job.Ranks, Facts: next.Facts, Accelerator: l.Accelerator, Started: time.Now(),
		HangTimeout: strategy.Seconds(l.HangTimeout), Stalls: l.Stalls,
	}
	running, err := l.start(ctx, state, &evidence)
	if err != nil {
		return l.unstarted(state, evidence, err)
	}
	w := newWatch(l, running, next, &evidence)
	w.climb.history, w.effect.history = state.History, state.History
	w.draft = func() error {
		return l.Store.Draft(state.Verdict.stopping(next, stopDecision(ctx, strategy.Decision{})))
	}
	// A notice that could not be journaled is lost; what follows it decides whether the
	// run can go on.
	_ = w.run(ctx)
	evidence.Ended, evidence.Notice = time.Now(), l.World.Notice()
	if signal := signalled(ctx); evidence.StopSignal == 0 && signal != 0 && evidence.EndedBy(signal) >= 0 {
		evidence.StopSignal = signal // it reached the ranks, too, and ended them before it was clear what it meant
	}
	return evidence, l.Store.Append(Ended{Evidence: evidence})
}

// start starts all ranks with a plan, or none, and says when.
func (l *Launcher) start(ctx context.Context, state State, evidence *strategy.Evidence) (Attempt, error) {
	next := state.Next
	if signal := signalled(ctx); signal != 0 {
		return nil, &Signal{Number: syscall.Signal(signal)}
	}
	dir, err := l.Store.Prepare(next.N)
	if err != nil {
		return nil, err
	}
	command, err := l.apply(next, dir)
	if err != nil {
		return nil, fmt.Errorf("apply the plan: %w", err)
	}
	started := Started{N: next.N, Plan: next.Plan, Rung: next.Rung, Checkpoint: next.Checkpoint, Expected: next.Expected, Command: command, Dir: dir, Diff: command.Diff, At: time.Now().UTC()}
	if err := l.Store.Append(started); err != nil {
		return nil, err
	}
	if err := l.Store.Write(dir, next.Plan, command); err != nil {
		return nil, err
	}
	evidence.Started = time.Now()
	return l.Starter.Start(ctx, Launch{
		N: next.N, Dir: dir, Command: command, Plan: next.Plan, Checkpoint: next.Checkpoint, Confirm: l.Job.Unproven(next.Plan) || l.Job.Redivides(next.Plan), Closely: strategy.RecordAllAllocations(state.History),
	})
}

// apply makes the command of an attempt. A panic there is an error with the code of a bug: it
// must not hide how the job ended before.
func (l *Launcher) apply(next Next, dir string) (command model.Command, err error) {
	err = errext.Recovered(func() (err error) {
		command, err = l.Recipe.Apply(next.Plan, next.Checkpoint, dir)
		return err
	})
	if errext.Panicked(err) {
		err = errext.WithCode(err, strategy.CodeBug)
	}
	return command, err
}

// unstarted closes an attempt whose ranks could not be started. It is an error as
// long as nothing ever was; later it is evidence like any other, and decided upon.
func (l *Launcher) unstarted(state State, evidence strategy.Evidence, err error) (strategy.Evidence, error) {
	var stop *Signal
	code, bug := errext.Code(err, strategy.CodeFailed), errext.Panicked(err) && state.begun
	if errors.As(err, &stop) || code == strategy.CodeBug && !bug {
		return evidence, err
	}
	evidence.Ended = time.Now()
	evidence.Unstarted = &strategy.Unstarted{
		Reason: strings.ReplaceAll(err.Error(), "\n", "; "), Hint: errext.Hint(err), Wait: code == strategy.CodeRetry, RunDir: code == strategy.CodeRunDir, Bug: bug,
	}
	err = fmt.Errorf("start attempt %d: %w", evidence.Attempt, err)
	if lost := l.Store.Append(Ended{Evidence: evidence}); lost != nil || !state.begun {
		return evidence, errors.Join(lost, err)
	}
	return evidence, nil
}

// decide is what was decided after the last attempt, by what there is to work with
// now.
func (l *Launcher) decide(ctx context.Context, state State) Decided {
	inventory := l.World.Inventory(ctx)
	if d := state.History[len(state.History)-1].Climb; d != nil && l.Checkpoints != nil && l.Checkpoints.Complete(d.Resume) {
		inventory.Checkpoint = d.Resume // what came later may have been cut off
	}
	d := Decided{Diagnosis: state.diagnosis(), Decision: strategy.Decide(l.Policy, l.Job, state.History, inventory), Inventory: inventory}
	if l.Conditions != nil && strategy.Settled(d.Decision, state.History[len(state.History)-1], inventory) {
		d.Conditions = l.Conditions(ctx, inventory)
	}
	return d
}

// giveUp ends a run that an error cuts short. A signal that came while no rank ran
// is no error: the run ends with its verdict. Where ranks have run, the error says how
// they ended.
func (l *Launcher) giveUp(ctx context.Context, state State, evidence strategy.Evidence, err error) (Verdict, error) {
	var stop *Signal
	switch {
	case errors.As(err, &stop):
		return l.finish(state, stopDecision(ctx, strategy.Decision{}))
	case evidence.Ended.IsZero() || evidence.Unstarted != nil && !state.begun:
		return state.Verdict, err
	}
	state.End(evidence, strategy.Diagnose(evidence))
	return state.unwritten(l.decide(ctx, state), err)
}

// finish ends a run as it was decided.
func (l *Launcher) finish(state State, d strategy.Decision) (Verdict, error) {
	state.end(d)
	return state.Verdict, Finish(l.Store, state.Verdict)
}

// settle waits until the devices are free again, and for at least after; who
// else holds memory is evidence for the next attempt. Signals and notices cut the wait
// short.
func (l *Launcher) settle(ctx context.Context, after time.Duration) []strategy.Fact {
	over := time.NewTimer(after)
	defer over.Stop()
	look := time.NewTicker(noticeInterval)
	defer look.Stop()
	for waiting := after > 0; waiting && ctx.Err() == nil && l.World.Notice() == nil; {
		select {
		case <-over.C:
			waiting = false
		case <-look.C:
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil || l.World.Notice() != nil {
		return nil
	}
	return l.World.Settle(ctx, settleBound)
}

// called reports whether a signal, or the end of the time, forbids the relaunch that was
// decided, and how the run ends: then, or as it was decided.
func (l *Launcher) called(ctx context.Context, next strategy.Decision) (strategy.Decision, bool) {
	if !next.Relaunch {
		return next, false
	}
	if signalled(ctx) != 0 {
		return stopDecision(ctx, next), true
	}
	if notice := l.World.Notice(); notice != nil {
		return strategy.Announced(notice.Signal, next), true
	}
	if next.Late != "" {
		return strategy.Postponed(next), true
	}
	return next, false
}
