package launcher

import (
	"fmt"
	"reflect"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// StandstillBound is how many times in a row a scheduler may restart a job that makes no progress: Slurm
// would requeue it forever.
const StandstillBound = 5

// A start is one start of a run by a scheduler, from the journal.
type start struct {
	restart int
	next    Next // of its first attempt
	ran     bool
	cause   cause.Code // of the last attempt that ended, empty for none
}

// Standstill returns how to end a run that a scheduler starts again and again without progress: each time
// with the same plan, from the same checkpoint. It reports false if the run may continue. now is the new
// beginning of the run, and s its state.
func Standstill(events []Event, now Began, s State) (strategy.Decision, bool) {
	if now.Restart == 0 {
		return strategy.Decision{}, false
	}
	starts := startsOf(events)
	same, last := 0, cause.Code("")
	for i := len(starts) - 1; i >= 0; i-- {
		if !starts[i].ran || starts[i].next.Checkpoint != s.Next.Checkpoint || !reflect.DeepEqual(starts[i].next.Plan, s.Next.Plan) {
			break
		}
		if last == "" {
			last = starts[i].cause
		}
		if same++; starts[i].restart == 0 {
			break
		}
	}
	if same <= StandstillBound {
		return strategy.Decision{}, false
	}
	from := "from the beginning, since it has no checkpoint"
	if s.Next.Checkpoint != "" {
		from = "from the checkpoint " + s.Next.Checkpoint
	}
	d := strategy.Decision{Rule: "standstill", Outcome: strategy.Failed, Code: strategy.CodeFailed, Reason: fmt.Sprintf(
		"the scheduler has started this job again %d times without any progress: each time with the same plan, %s", same-1, from)}
	if last.OutOfMemory() {
		d.Outcome, d.Code = strategy.Exhausted, strategy.CodeExhausted
	}
	return d, true
}

// startsOf returns the starts of a run in order.
func startsOf(events []Event) []start {
	var starts []start
	for _, e := range events {
		switch e := e.(type) {
		case Began:
			starts = append(starts, start{restart: e.Restart})
		case Started:
			if n := len(starts); n > 0 && !starts[n-1].ran {
				starts[n-1].ran, starts[n-1].next = true, Next{Plan: e.Plan, Checkpoint: e.Checkpoint}
			}
		case Ended:
			if n := len(starts); n > 0 {
				starts[n-1].cause = strategy.Diagnose(e.Evidence).Cause
			}
		}
	}
	return starts
}
