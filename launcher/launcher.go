// Package launcher runs a training job until it trains to its end, or no plan is left to try.
//
// Run is the whole of gpurun in one loop. Each round is an attempt: start all ranks with the next plan (the
// settings that gpurun may change, such as micro batch and accumulation), watch them, and collect evidence
// until they are gone. strategy.Diagnose finds the cause of their end in the evidence. strategy.Decide then
// ends the run, or relaunches the job, after out of memory with a plan that needs less. Every event is in the
// journal before gpurun acts on it, so that a killed run can be resumed.
//
// The launcher declares the interfaces that it needs (parts.go); cmd/gpurun connects them with the packages
// below this one.
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
	// Checkpoints finds the checkpoints that the job writes; nil if none are known.
	Checkpoints Checkpoints
	Store       Store
	// Memory remembers plans of the job across runs; nil: nothing is remembered.
	Memory PlanMemory
	// Adviser writes the next steps after a run that ended without training; nil: there are none.
	Adviser Adviser
	Graces  Graces
	// Conditions returns a digest of everything that the end of a run depends on: code, versions, policy,
	// device. May be nil, or return "", if that is not known.
	Conditions func(ctx context.Context, inv strategy.Inventory) string
	// HangTimeout bounds the silence of a rank after an out-of-memory traceback: after that, it counts as
	// hanging.
	HangTimeout time.Duration
	// Stalls defines when a job that makes no steps counts as hanging; nil: never.
	Stalls *strategy.StallRule

	forgetful bool // gpurun has warned that it cannot remember plans
	// decideSpeedup replaces strategy.FindSpeedup in tests; nil otherwise.
	decideSpeedup func(strategy.Policy, strategy.Job, []strategy.Attempt, strategy.Attempt,
		strategy.Inventory) strategy.Speedup
}

// Run launches the job, beginning at a state, until there is a verdict. Cancelling ctx with a *Signal as its
// cause stops the ranks and the run.
//
// An error means that no rank was ever started, or that gpurun itself could not continue because it cannot
// write the run directory. The error includes how the job ended.
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
			state.Verdict.Next = l.next(state, end)
			return state.Close(l.Store, end)
		}
	}
}
