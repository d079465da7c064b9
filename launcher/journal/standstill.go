package journal

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// StandstillBound is how many times in a row a scheduler may restart a job that makes no progress: Slurm
// would requeue it forever.
const StandstillBound = 5

// A runStart is one start of the run, by a scheduler or by the user.
type runStart struct {
	restart int // counted by the scheduler
	first   int // the index of its first attempt
}

// Standstill returns how to end a run that a scheduler starts again and again without progress: each time
// with the same plan, from the same checkpoint. It reports false if the run may continue. restart counts the
// restarts including the new one, which is not in the run yet, and next is its first attempt.
func (r *Run) Standstill(restart int, next launcher.Next) (strategy.Decision, bool) {
	if restart == 0 {
		return strategy.Decision{}, false
	}
	same, last, end := 0, cause.Code(""), len(r.Attempts)
	for _, s := range slices.Backward(r.starts) {
		attempts := r.Attempts[s.first:end]
		end = s.first
		first := slices.IndexFunc(attempts, func(a AttemptState) bool { return a.launched })
		if first < 0 || attempts[first].Checkpoint != next.Checkpoint || !maps.Equal(attempts[first].Plan, next.Plan) {
			break
		}
		for i := len(attempts) - 1; i >= 0 && last == ""; i-- {
			if attempts[i].Phase >= Ended {
				last = strategy.Diagnose(attempts[i].Evidence).Cause
			}
		}
		if same++; s.restart == 0 {
			break
		}
	}
	if same <= StandstillBound {
		return strategy.Decision{}, false
	}
	from := "from the beginning, since it has no checkpoint"
	if next.Checkpoint != "" {
		from = "from the checkpoint " + next.Checkpoint
	}
	d := strategy.Decision{Rule: "standstill", Outcome: strategy.Failed, Code: strategy.CodeFailed, Reason: fmt.Sprintf(
		"the scheduler has started this job again %d times without any progress: each time with the same plan, %s", same-1,
		from)}
	if last.OutOfMemory() {
		d.Outcome, d.Code = strategy.Exhausted, strategy.CodeExhausted
	}
	return d, true
}
