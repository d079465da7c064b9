package launcher

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

func standing(rank int, frames ...cause.StackFrame) strategy.Fact {
	return strategy.Fact{Rank: rank, Source: "probe", Content: &strategy.Stack{PID: 100 + rank, Frames: frames}}
}

// A job that makes no step for the time in the rule is stopped, its ranks' stacks are recorded, and the same
// plan runs again.
func TestAStalledJobRunsAgain(t *testing.T) {
	const m = time.Minute
	slow := standing(1, cause.StackFrame{File: "/home/u/train.py", Line: 41, Function: "load"})
	waits := standing(0, cause.StackFrame{File: "/x/torch/distributed/distributed_c10d.py", Line: 9, Function: "all_reduce"},
		cause.StackFrame{File: "/home/u/train.py", Line: 52, Function: "step"})
	for name, test := range map[string]struct {
		rule    *strategy.StallRule
		first   script
		stopped time.Duration // 0: never
	}{
		"no rule":                {nil, script{step: m, acts: []act{exit(time.Hour, 0, 0)}}, 0},
		"a last step":            {&strategy.StallRule{After: strategy.Seconds(5 * m)}, script{step: m, acts: []act{exit(time.Hour, 0, 0)}}, 6 * m},
		"words are no steps":     {&strategy.StallRule{After: strategy.Seconds(5 * m)}, script{step: m, chatty: true, acts: []act{exit(time.Hour, 0, 0)}}, 6 * m},
		"no step at all":         {&strategy.StallRule{After: strategy.Seconds(5 * m)}, script{acts: []act{exit(time.Hour, 0, 0)}}, 5 * m},
		"a rank that ends":       {&strategy.StallRule{After: strategy.Seconds(5 * m)}, script{step: m, acts: []act{exit(4*m, 1, 0), exit(time.Hour, 0, 0)}}, 9 * m},
		"auto":                   {&strategy.StallRule{}, script{step: m, acts: []act{exit(time.Hour, 0, 0)}}, 11 * m},
		"auto, long steps":       {&strategy.StallRule{}, script{step: m, longest: 2 * m, acts: []act{exit(time.Hour, 0, 0)}}, 21 * m},
		"auto, an evaluation":    {&strategy.StallRule{}, script{step: m, talks: 8 * m, acts: []act{exit(time.Hour, 0, 0)}}, 18 * m},
		"auto, before any steps": {&strategy.StallRule{}, script{acts: []act{exit(time.Hour, 0, 0)}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test.first.stacks = []strategy.Fact{waits, slow}
				st := &stage{t: t, scripts: []script{test.first, {acts: []act{exit(m, 0, 0), exit(m, 1, 0)}}}}
				l := newLauncher(st)
				l.Stalls, l.Policy.Mode = test.rule, strategy.Off
				l.Policy.RestartFromZero = strategy.Seconds(100 * time.Hour)
				v, err := l.Run(t.Context(), first())
				if err != nil {
					t.Fatal(err)
				}
				if test.stopped == 0 {
					if len(v.Attempts) != 1 || len(st.stops) != 0 {
						t.Fatalf("%d attempts, stops %+v", len(v.Attempts), st.stops)
					}
					return
				}
				if len(st.stops) != 1 || st.stops[0].after != test.stopped {
					t.Fatalf("stops %+v, want one after %s", st.stops, test.stopped)
				}
				if v.Outcome != strategy.Trained || len(v.Attempts) != 2 || v.Attempts[0].Cause != cause.Hang || *v.Attempts[0].Rank != 1 {
					t.Errorf("%s: %+v", v.Outcome, v.Attempts)
				}
				const want = "rank 1 at train.py:41 in load; rank 0 waiting at train.py:52 in step, in all_reduce"
				if !strings.HasSuffix(v.Attempts[0].Error, want) {
					t.Errorf("error %q, want %q", v.Attempts[0].Error, want)
				}
				ev := ended(t, st.events)
				if again, _ := strategy.Replay(ev); again.Reason != strategy.StopStalled || again.At.Sub(ev.Started) != test.stopped {
					t.Errorf("replayed from the journal: %+v", again)
				}
			})
		})
	}
}
