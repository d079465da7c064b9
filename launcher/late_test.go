package launcher

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// hurried is a stage with a deadline.
type hurried struct {
	*stage
	deadline time.Time
}

func (h hurried) Inventory(ctx context.Context) strategy.Inventory {
	inv := h.stage.Inventory(ctx)
	inv.At, inv.Deadline = time.Now(), h.deadline
	return inv
}

// An attempt that could not end in time does not begin. The decision for it is in the journal with the
// reason, and the next start of the run continues with it.
func TestARunStopsBeforeAnAttemptThatCouldNotEndInTime(t *testing.T) {
	const m = time.Minute
	step := act{6 * m, strategy.Fact{Rank: 0, Source: "stdout", Content: &strategy.Progress{Steps: 1, Last: 1}}}
	for _, test := range []struct {
		given   time.Duration
		outcome strategy.Outcome
	}{{20 * m, strategy.Trained}, {18 * m, strategy.Retry}} {
		synctest.Test(t, func(t *testing.T) {
			s := &stage{t: t, scripts: []script{
				{acts: []act{step, raised(10*m, 0, cause.CUDAOOM), exit(10*m, 0, 1)}},
				{acts: []act{exit(5*m, 0, 0), exit(5*m, 1, 0)}},
			}, inv: strategy.Inventory{Checkpoint: "ckpt-5"}}
			l := newLauncher(s)
			l.World = hurried{s, time.Now().Add(test.given)}
			v, err := l.Run(t.Context(), first())
			if err != nil || v.Outcome != test.outcome {
				t.Fatalf("%s: verdict %+v, %v", test.given, v, err)
			}
			if v.Outcome == strategy.Trained {
				return
			}
			if want := "an attempt takes 6m0s to its first step; it continues from ckpt-5"; v.Code != strategy.CodeRetry || !strings.Contains(v.Reason, want) || len(s.applied) != 1 {
				t.Errorf("%d attempts, code %d: %s", len(s.applied), v.Code, v.Reason)
			}
			state, done := Resume(plan0, "run", append([]Event{Began{Plan: plan0}}, s.events...))
			if done || state.Next.N != 1 || state.Next.Checkpoint != "ckpt-5" || state.Next.Plan[strategy.ActivationCheckpointing] != "full" {
				t.Errorf("the next start: done %t, %+v", done, state.Next)
			}
			for _, r := range Replay(append([]Event{Began{Policy: l.Policy, Job: l.Job, Plan: plan0, Version: "v"}}, s.events...), "v") {
				if !r.Same || r.Decision.Late == "" {
					t.Errorf("replayed: %+v", r.Decision)
				}
			}
		})
	}
}
