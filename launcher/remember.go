package launcher

import (
	"context"
	"strings"

	"github.com/gpurun/gpurun/strategy"
)

// A Memory remembers across runs what plans of the job needed.
type Memory interface {
	// Recall puts into the job what is remembered of it, as far as it holds now. The words
	// are for people. The inventory is asked for only where that depends on it.
	Recall(ctx context.Context, p strategy.Policy, j strategy.Job, inventory func() strategy.Inventory) (with strategy.Job, words []string)
	// Keep remembers the last attempt of the history, after which d was decided.
	Keep(ctx context.Context, j strategy.Job, history []strategy.Attempt, d strategy.Decision, inv strategy.Inventory) error
}

// Recall makes the job what it is with what is remembered of it, and the state's first
// attempt one with the plan that fitted. A run that goes on is not asked about: what it
// began with counts. The words are for people.
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

// remembering is a job with what was remembered of it in another.
func remembering(j, of strategy.Job) strategy.Job {
	j.Recalled, j.Remembered, j.Unsure = of.Recalled, of.Remembered, of.Unsure
	return j
}

// firstPlan is what attempt 0 runs with: as written, unless another plan is remembered.
func firstPlan(written strategy.Plan, j strategy.Job) strategy.Plan {
	if j.Recalled != nil {
		return j.Recalled.Plan
	}
	return written
}

// keep remembers the attempt that was just decided upon. That it cannot is told once, and
// is no reason to end anything.
func (l *Launcher) keep(ctx context.Context, state State, d Decided) {
	if l.Memory == nil {
		return
	}
	err := l.Memory.Keep(ctx, l.Job, state.History, d.Decision, d.Inventory)
	if err != nil && !l.forgetful {
		l.forgetful = true
		// Where the journal cannot be written, the event that follows says so.
		_ = l.Store.Append(Noticed{Text: "warning: " + strings.ReplaceAll(err.Error(), "\n", "; ")})
	}
}
