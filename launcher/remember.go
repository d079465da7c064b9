package launcher

import (
	"context"
	"strings"

	"github.com/gpurun/gpurun/strategy"
)

// A PlanMemory remembers plans of the job, and their memory, across runs.
type PlanMemory interface {
	// Recall adds the remembered plans to the job, as far as they hold now. The words are for people. The inventory is
	// read only where they depend on it.
	Recall(ctx context.Context, p strategy.Policy, j strategy.Job, inventory func() strategy.Inventory) (with strategy.Job, words []string)
	// Keep remembers the last attempt of the history, after which d was decided.
	Keep(ctx context.Context, j strategy.Job, history []strategy.Attempt, d strategy.Decision, inv strategy.Inventory) error
}

// Recall adds the remembered plans to the job, and makes the plan that fitted that of the first attempt. A resumed run
// keeps those that it began with. The words are for people.
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

// remembering is a job with the remembered plans of another.
func remembering(j, of strategy.Job) strategy.Job {
	j.Recalled, j.Remembered, j.Unsure = of.Recalled, of.Remembered, of.Unsure
	return j
}

// firstPlan is the plan of attempt 0: as written, unless another is remembered.
func firstPlan(written strategy.Plan, j strategy.Job) strategy.Plan {
	if j.Recalled != nil {
		return j.Recalled.Plan
	}
	return written
}

// keep remembers the attempt that was just decided upon. A failure is reported once, and ends nothing.
func (l *Launcher) keep(ctx context.Context, state State, d Decided) {
	if l.Memory == nil {
		return
	}
	err := l.Memory.Keep(ctx, l.Job, state.History, d.Decision, d.Inventory)
	if err != nil && !l.forgetful {
		l.forgetful = true
		// Where the journal cannot be written, the next event fails, too.
		_ = l.Store.Append(Noticed{Text: "warning: " + strings.ReplaceAll(err.Error(), "\n", "; ")})
	}
}
