// Package launcher runs a training job until it ends or its strategy gives up.
//
// This file is the page: attempt, diagnose, decide, journal, apply, again. What
// the launcher consumes it declares as small interfaces (parts.go); cmd/gpurun
// joins them with the packages beside this one.
package launcher

import (
	"context"
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// A Launcher runs one job. Its fields are set once, before Run.
type Launcher struct {
	Policy strategy.Policy
	Job    strategy.Job
	// Accelerator is what the job trains on: "cuda" or "cpu".
	Accelerator string
	Recipe      Recipe
	Starter     Starter
	World       World
	// Checkpoints are those that the job writes; nil where none are known.
	Checkpoints Checkpoints
	Store       Store
	// Memory is asked and told what plans of the job needed; nil: nothing is remembered.
	Memory Memory
	Graces Graces
	// Conditions is a digest of what a run's end rests on: code, versions, policy, device.
	// Empty, or nil: not known.
	Conditions func(ctx context.Context, inv strategy.Inventory) string
	// HangTimeout is the silence after an out-of-memory traceback that means
	// that the rank hangs.
	HangTimeout time.Duration
	// Stalls says when a job that makes no step counts as one that hangs; nil: never.
	Stalls *strategy.StallRule

	forgetful bool // people know that nothing can be remembered
	// decideClimb stands in for strategy.Climb in tests; nil: that decides.
	decideClimb func(strategy.Policy, strategy.Job, []strategy.Attempt, strategy.Attempt, strategy.Inventory) strategy.Ascent
}

// Run launches the job, and goes on from where from stopped, until there is a
// verdict. An error means that nothing was ever started, or that gpurun itself could
// not go on: the run directory is lost, and the error says how the job ended.
// Cancelling ctx with a *Signal as its cause stops the ranks and the run.
func (l *Launcher) Run(ctx context.Context, from State) (Verdict, error) {
	state := from
	state.Job = l.Job
	for {
		if !state.undecided {
			evidence, err := l.attempt(ctx, state)
			if err != nil {
				return l.giveUp(ctx, state, evidence, err)
			}
			state.End(evidence, strategy.Diagnose(evidence))
		}
		decided := l.decide(ctx, state)
		if err := l.Store.Append(decided); err != nil {
			return state.unwritten(decided, err)
		}
		state.decide(decided)
		l.keep(ctx, state, decided)
		if decided.Decision.Relaunch && decided.Decision.Late == "" {
			state.Next.Facts = l.settle(ctx, decided.Decision.After.Duration())
		}
		if end, called := l.called(ctx, decided.Decision); called || !decided.Decision.Relaunch {
			return l.finish(state, end)
		}
	}
}
