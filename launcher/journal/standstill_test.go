package journal

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

var plan0 = strategy.Plan{strategy.MicroBatchSize: "8", strategy.GradientAccumulationSteps: "1"}

// lives are starts of a run by a scheduler, each of which tried a plan from a checkpoint.
func lives(checkpoints ...string) (events []launcher.Event) {
	for n, c := range checkpoints {
		events = append(events, launcher.Began{Restart: n}, launcher.Started{N: n, Plan: plan0, Checkpoint: c})
	}
	return events
}

func TestAStandstillEndsTheRun(t *testing.T) {
	oom := launcher.Ended{Evidence: strategy.Evidence{Facts: []strategy.Fact{
		{Source: "stderr", Content: &strategy.Finding{Code: cause.CUDAOOM, Raised: true, Rank: -1, Phase: cause.Backward, Line: 1, Text: "torch.cuda.OutOfMemoryError: CUDA out of memory."}},
		{Source: "exit", Content: &strategy.Exit{Code: 1}},
	}}}
	smaller := plan0.With(strategy.Plan{strategy.MicroBatchSize: "4"})
	byHand := lives("", "", "", "", "", "", "")
	for i, e := range byHand {
		if b, ok := e.(launcher.Began); ok {
			b.Restart = 0
			byHand[i] = b
		}
	}
	for name, test := range map[string]struct {
		events []launcher.Event
		next   launcher.Next
		now    int // restarts
		code   int // 0: it continues
	}{
		"the fifth restart":              {lives("", "", "", "", ""), launcher.Next{Plan: plan0}, 5, 0},
		"the sixth":                      {lives("", "", "", "", "", ""), launcher.Next{Plan: plan0}, 6, strategy.CodeFailed},
		"for want of memory":             {append(lives("", "", "", "", "", ""), oom), launcher.Next{Plan: plan0}, 6, strategy.CodeExhausted},
		"from the same checkpoint":       {lives("a", "b", "b", "b", "b", "b", "b"), launcher.Next{Plan: plan0, Checkpoint: "b"}, 7, strategy.CodeFailed},
		"a checkpoint in between":        {lives("a", "a", "a", "b", "b", "b"), launcher.Next{Plan: plan0, Checkpoint: "b"}, 6, 0},
		"a checkpoint since":             {lives("a", "a", "a", "a", "a", "a"), launcher.Next{Plan: plan0, Checkpoint: "b"}, 6, 0},
		"another plan since":             {lives("", "", "", "", "", ""), launcher.Next{Plan: smaller}, 6, 0},
		"no scheduler starts it again":   {lives("", "", "", "", "", ""), launcher.Next{Plan: plan0}, 0, 0},
		"somebody did so by hand before": {byHand, launcher.Next{Plan: plan0}, 1, 0},
		"a start that tried nothing":     {slices.Concat(lives("", "", ""), []launcher.Event{launcher.Began{Restart: 3}}), launcher.Next{Plan: plan0}, 4, 0},
	} {
		d, stuck := RunOf(test.events).Standstill(test.now, test.next)
		if stuck != (test.code != 0) || d.Code != test.code {
			t.Errorf("%s: %v, %+v", name, stuck, d)
		}
		if stuck && !strings.Contains(d.Reason, "without any progress") {
			t.Errorf("%s: %s", name, d.Reason)
		}
	}
}
