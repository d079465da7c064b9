package launcher

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/strategy"
)

// attempt launches all ranks with the next plan, watches them to their end, and returns the evidence. The
// attempt is in the journal before the first rank runs. If the journal cannot be written while ranks run,
// they continue, and attempt returns both the evidence and the error.
func (l *Launcher) attempt(ctx context.Context, state State) (strategy.Evidence, error) {
	next := state.Next
	evidence := strategy.Evidence{
		Attempt: next.N, Plan: next.Plan, Ranks: l.Job.Ranks, Facts: next.Facts, Accelerator: l.Accelerator,
		Started:     time.Now(),
		HangTimeout: strategy.Seconds(l.HangTimeout), Stalls: l.Stalls, Questions: l.Policy.Questions,
	}
	running, err := l.start(ctx, state, &evidence)
	if err != nil {
		return l.unstarted(state, evidence, err)
	}
	w := newWatch(l, running, next, &evidence)
	w.speedup.history, w.effect.history = state.History, state.History
	w.draft = func() error {
		return l.Store.Draft(state.Verdict.stopping(next, stopDecision(ctx, strategy.Decision{})))
	}
	// A notice that could not be journaled is lost; the next event decides whether the run can continue.
	_ = w.run(ctx)
	evidence.Ended, evidence.Notice = evidence.Clock(time.Now()), l.World.Notice()
	if signal := signalled(ctx); evidence.StopSignal == 0 && signal != 0 && evidence.EndedBy(signal) >= 0 {
		evidence.StopSignal = signal // the ranks got it too, and ended before gpurun knew its meaning
	}
	return evidence, l.Store.Append(Ended{Evidence: evidence})
}

// start starts all ranks with a plan, or none, and sets the time of the start.
func (l *Launcher) start(ctx context.Context, state State, evidence *strategy.Evidence) (Attempt, error) {
	next := state.Next
	if signal := signalled(ctx); signal != 0 {
		return nil, &Signal{Number: syscall.Signal(signal)}
	}
	dir, err := l.Store.Prepare(next.N)
	if err != nil {
		return nil, err
	}
	by := l.Job.Arguments(next.Plan, state.History)
	command, err := l.apply(next, by, dir)
	if err != nil {
		return nil, fmt.Errorf("apply the plan: %w", err)
	}
	inPlace := strategy.AllowInPlace(l.Policy, state.arming(), state.History, next.Plan, l.Accelerator)
	started := Started{N: next.N, Plan: next.Plan, Arguments: by, Remedy: next.Remedy, Checkpoint: next.Checkpoint,
		Written: next.Written, Rescue: next.Rescue, Expected: next.Expected, InPlace: inPlace, Command: command, Dir: dir, Diff: command.Diff, At: time.Now().UTC()}
	if err := l.Store.Append(started); err != nil {
		return nil, err
	}
	if err := l.Store.Write(dir, next.Plan, command); err != nil {
		return nil, err
	}
	evidence.Started = time.Now()
	return l.Starter.Start(ctx, Launch{
		N: next.N, Dir: dir, Command: command, Plan: next.Plan, Arguments: by, Checkpoint: next.Checkpoint, InPlace: inPlace,
		Outside: l.Job.Untouched(state.History), Confirm: l.Job.Unproven(next.Plan) ||
			l.Job.Redivides(next.Plan), Closely: strategy.RecordAllAllocations(state.History),
	})
}

// apply makes the command of an attempt. A panic becomes an error with the exit code of a bug, so that the
// verdict still says how the job ended before.
func (l *Launcher) apply(next Next, by strategy.Arguments, dir string) (command strategy.Command, err error) {
	err = errext.Recovered(func() (err error) {
		command, err = l.Recipe.Apply(next.Plan, by, next.Checkpoint, dir)
		return err
	})
	if errext.Panicked(err) {
		err = errext.WithCode(err, strategy.CodeBug)
	}
	return command, err
}

// unstarted closes an attempt whose ranks could not be started. Before any rank has run this is an error;
// later it is evidence for the next decision.
func (l *Launcher) unstarted(state State, evidence strategy.Evidence, err error) (strategy.Evidence, error) {
	var stop *Signal
	code, bug := errext.Code(err, strategy.CodeFailed), errext.Panicked(err) && state.begun
	if errors.As(err, &stop) || code == strategy.CodeBug && !bug {
		return evidence, err
	}
	evidence.Ended = evidence.Clock(time.Now())
	evidence.Unstarted = &strategy.Unstarted{
		Reason: strings.ReplaceAll(err.Error(), "\n", "; "), Hint: errext.Hint(err), Wait: code == strategy.CodeRetry,
		RunDir: code == strategy.CodeRunDir, Bug: bug,
	}
	err = fmt.Errorf("start attempt %d: %w", evidence.Attempt, err)
	if lost := l.Store.Append(Ended{Evidence: evidence}); lost != nil || !state.begun {
		return evidence, errors.Join(lost, err)
	}
	return evidence, nil
}

// decide makes the decision after the last attempt, with the resources available now.
func (l *Launcher) decide(ctx context.Context, state State) Decided {
	inventory := l.World.Inventory(ctx)
	if d := state.History[len(state.History)-1].Speedup; d != nil && l.Checkpoints != nil &&
		l.Checkpoints.Complete(d.Resume) {
		inventory.Checkpoint = d.Resume // a later checkpoint may be incomplete
	}
	d := Decided{Diagnosis: state.diagnosis(), Decision: strategy.Decide(l.Policy, l.Job, state.History, inventory),
		Inventory: inventory}
	d.GPUTime = state.gpuTime(d.Decision, inventory)
	if l.Conditions != nil && strategy.Settled(d.Decision, state.History[len(state.History)-1], inventory) {
		d.Conditions = l.Conditions(ctx, inventory)
	}
	return d
}

// giveUp ends a run after an error, which then includes how the ranks ended, if any ran. A signal before any
// rank ran is no error: the run ends with the signal's verdict.
func (l *Launcher) giveUp(ctx context.Context, state State, evidence strategy.Evidence, err error) (Verdict, error) {
	var stop *Signal
	switch {
	case errors.As(err, &stop):
		return state.Close(l.Store, stopDecision(ctx, strategy.Decision{}))
	case evidence.Ended.IsZero() || evidence.Unstarted != nil && !state.begun:
		return state.Verdict, err
	}
	state.End(evidence, strategy.Diagnose(evidence))
	return state.unwritten(l.decide(ctx, state), err)
}

// settle waits until the devices are free again, and at least for the duration after. It returns other
// processes' memory as evidence for the next attempt. Signals and notices end the wait.
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

// called reports whether a signal, or the end of the job's time, prevents the relaunch next. It returns the
// decision that ends the run in this case, and else next unchanged.
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
