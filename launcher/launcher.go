// Package launcher runs a training job until it ends or its strategy stops trying.
//
// This file is the main loop: attempt, diagnose, decide, journal, apply, again. The launcher declares the
// interfaces that it consumes (parts.go); cmd/gpurun connects them with the packages next to this one.
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
	// Memory remembers plans of the job across runs; nil: nothing is remembered.
	Memory PlanMemory
	Graces Graces
	// Conditions is a digest of what a run's end depends on: code, versions, policy, device. Empty, or nil:
	// not known.
	Conditions func(ctx context.Context, inv strategy.Inventory) string
	// HangTimeout is the silence after an out-of-memory traceback that means that the rank hangs.
	HangTimeout time.Duration
	// Stalls is when a job without steps counts as hanging; nil: never.
	Stalls *strategy.StallRule

	forgetful bool // a warning has been shown that nothing can be remembered
	// decideClimb replaces strategy.Climb in tests; nil: it is not replaced.
	decideClimb func(strategy.Policy, strategy.Job, []strategy.Attempt, strategy.Attempt, strategy.Inventory) strategy.Ascent
}

// Run launches the job, from a state on, until there is a verdict. An error means that nothing was ever
// started, or that gpurun itself could not continue: the run directory is lost, and the error includes how
// the job ended. Cancelling ctx with a *Signal as its cause stops the ranks and the run.
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
			return state.Close(l.Store, end)
		}
	}
}
