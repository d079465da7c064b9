package launcher

import (
	"context"
	"strings"

	"github.com/gpurun/gpurun/strategy"
)

// A PlanMemory remembers plans of the job, and how much memory they needed, across runs.
type PlanMemory interface {
	// Recall adds the remembered plans to the job, if they still apply. The words are for the user. It reads
	// the inventory only if a plan depends on it.
	Recall(ctx context.Context, p strategy.Policy, j strategy.Job,
		inventory func() strategy.Inventory) (with strategy.Job, words []string)
	// Keep remembers the last attempt of the history, and the decision d after it.
	Keep(ctx context.Context, j strategy.Job, history []strategy.Attempt, d strategy.Decision,
		inv strategy.Inventory) error
}

// Recall adds the remembered plans to the job, and starts the first attempt with the plan that fitted. A
// resumed run keeps the plans that it began with. The words are for the user.
func (l *Launcher) Recall(ctx context.Context, state *State) (words []string) {
	if !state.fresh {
		l.Job = remembering(l.Job, state.began)
	} else if l.Memory != nil {
		l.Job, words = l.Memory.Recall(ctx, l.Policy, l.Job, func() strategy.Inventory { return l.World.Inventory(ctx) })
		state.Next.Plan = firstPlan(state.Next.Plan, l.Job)
	}
	state.Verdict.Recalled = l.Job.Recalled
	return words
}

// remembering returns the job j with the remembered plans of another.
func remembering(j, of strategy.Job) strategy.Job {
	j.Recalled, j.Remembered, j.Armed = of.Recalled, of.Remembered, of.Armed
	return j
}

// firstPlan is the plan of attempt 0: the remembered one, or else the job as written.
func firstPlan(written strategy.Plan, j strategy.Job) strategy.Plan {
	if j.Recalled != nil {
		return j.Recalled.Plan
	}
	return written
}

// keep remembers the attempt after its decision. It reports a failure once; the run continues.
func (l *Launcher) keep(ctx context.Context, state State, d Decided) {
	if l.Memory == nil {
		return
	}
	err := l.Memory.Keep(ctx, state.arming(), state.History, d.Decision, d.Inventory)
	if err != nil && !l.forgetful {
		l.forgetful = true
		// If the journal cannot be written, the next event fails too.
		_ = l.Store.Append(Noticed{Text: "warning: " + strings.ReplaceAll(err.Error(), "\n", "; ")})
	}
}
