package launcher

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// lives are starts of a run by a scheduler, each of which tried a plan from a checkpoint.
func lives(checkpoints ...string) (events []Event) {
	for n, c := range checkpoints {
		events = append(events, Began{Restart: n}, Started{N: n, Plan: plan0, Checkpoint: c})
	}
	return events
}

func TestAStandstillEndsTheRun(t *testing.T) {
	oom := Ended{Evidence: strategy.Evidence{Facts: []strategy.Fact{
		raised(0, 0, cause.CUDAOOM).fact, exit(0, 0, 1).fact,
	}}}
	smaller := plan0.With(strategy.Plan{strategy.MicroBatchSize: "4"})
	byHand := lives("", "", "", "", "", "", "")
	for i, e := range byHand {
		if b, ok := e.(Began); ok {
			b.Restart = 0
			byHand[i] = b
		}
	}
	for name, test := range map[string]struct {
		events []Event
		next   Next
		now    int // restarts
		code   int // 0: it continues
	}{
		"the fifth restart":              {lives("", "", "", "", ""), Next{Plan: plan0}, 5, 0},
		"the sixth":                      {lives("", "", "", "", "", ""), Next{Plan: plan0}, 6, strategy.CodeFailed},
		"for want of memory":             {append(lives("", "", "", "", "", ""), oom), Next{Plan: plan0}, 6, strategy.CodeExhausted},
		"from the same checkpoint":       {lives("a", "b", "b", "b", "b", "b", "b"), Next{Plan: plan0, Checkpoint: "b"}, 7, strategy.CodeFailed},
		"a checkpoint in between":        {lives("a", "a", "a", "b", "b", "b"), Next{Plan: plan0, Checkpoint: "b"}, 6, 0},
		"a checkpoint since":             {lives("a", "a", "a", "a", "a", "a"), Next{Plan: plan0, Checkpoint: "b"}, 6, 0},
		"another plan since":             {lives("", "", "", "", "", ""), Next{Plan: smaller}, 6, 0},
		"no scheduler starts it again":   {lives("", "", "", "", "", ""), Next{Plan: plan0}, 0, 0},
		"somebody did so by hand before": {byHand, Next{Plan: plan0}, 1, 0},
		"a start that tried nothing":     {slices.Concat(lives("", "", ""), []Event{Began{Restart: 3}}), Next{Plan: plan0}, 4, 0},
	} {
		d, stuck := Standstill(test.events, Began{Restart: test.now}, State{Next: test.next})
		if stuck != (test.code != 0) || d.Code != test.code {
			t.Errorf("%s: %v, %+v", name, stuck, d)
		}
		if stuck && !strings.Contains(d.Reason, "without any progress") {
			t.Errorf("%s: %s", name, d.Reason)
		}
	}
}
