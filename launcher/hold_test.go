package launcher

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// No rank takes an optimizer step with a batch that was changed in the process before every rank has reported
// that it has the change.
func TestNoRankTrainsBeforeAllHaveTheBatch(t *testing.T) {
	says := func(after time.Duration, rank int, micro, accumulation strategy.Value) act {
		said := strategy.ProcessReport{PID: 100 + rank, World: 2, Waiting: true, Model: &strategy.Model{}, Settings: strategy.Plan{strategy.MicroBatchSize: micro, strategy.GradientAccumulationSteps: accumulation}}
		if micro == "4" {
			said.Applied = strategy.Changes{strategy.MicroBatchSize: {"8", "4"}, strategy.GradientAccumulationSteps: {"1", "2"}}
		}
		return act{after, strategy.Fact{Rank: rank, Source: "probe", Content: &said}}
	}
	scaled := func(a act, scale strategy.LossScale, applied bool) act {
		strategy.As[*strategy.ProcessReport](a.fact).Loss = &strategy.LossSeen{Scale: scale, Reason: "Net ignores the number of items"}
		if !applied {
			strategy.As[*strategy.ProcessReport](a.fact).Applied = nil
		}
		return a
	}
	written := strategy.Plan{strategy.MicroBatchSize: "8", strategy.GradientAccumulationSteps: "1"}
	for name, test := range map[string]struct {
		second []act
		freed  []time.Duration
		stops  []stop
		notes  string
	}{
		"both": {
			second: []act{says(time.Second, 0, "4", "2"), says(2*time.Second, 1, "4", "2")}, freed: []time.Duration{2 * time.Second},
		},
		"one has another": {
			second: []act{says(time.Second, 0, "4", "2"), says(2*time.Second, 1, "8", "1")}, stops: []stop{{1, 15, 2 * time.Second}},
			notes: "warning: micro batch 4 did not take effect, the job uses 8 (rank 1, the process)\nwarning: accumulation 2 did not take effect, the job uses 1 (rank 1, the process)\nthe ranks would not train with the same batch: all of them are stopped",
		},
		"half of it": {
			second: []act{says(time.Second, 0, "4", "1")}, stops: []stop{{1, 15, time.Second}},
			notes: "warning: accumulation 2 did not take effect, the job uses 1 (rank 0, the process)\nthe job would train with another global batch: all ranks are stopped",
		},
		"one says nothing": {
			second: []act{says(time.Second, 0, "4", "2")}, stops: []stop{{1, 15, time.Second + holdBound}},
			notes: "only 1 of 2 ranks have reported that they run with the changed batch: all ranks are stopped",
		},
		"the loss keeps its scale": {
			second: []act{scaled(says(time.Second, 0, "4", "2"), strategy.ScaleKept, true), says(2*time.Second, 1, "4", "2")}, freed: []time.Duration{2 * time.Second},
		},
		"the loss loses its scale": {
			second: []act{scaled(says(time.Second, 0, "4", "2"), strategy.ScaleWrong, true)}, stops: []stop{{1, 15, time.Second}},
			notes: "the gradients would not have the scale that they had: Net ignores the number of items: all ranks are stopped",
		},
		"one says nothing of an argument": {
			second: []act{scaled(says(time.Second, 0, "4", "2"), strategy.ScaleKept, false)}, freed: []time.Duration{time.Second + holdBound},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				well := []act{exit(time.Hour, 0, 0), exit(time.Hour, 1, 0)}
				s := &stage{t: t, scripts: []script{
					{acts: []act{raised(time.Minute, 0, cause.CUDAOOM), exit(time.Minute, 0, 1), exit(time.Minute, 1, 1)}},
					{acts: append(test.second, well...)}, {acts: well},
				}}
				l := newLauncher(s)
				l.Job.Written = written
				delete(l.Job.Knobs, strategy.ActivationCheckpointing)
				v, err := l.Run(context.Background(), State{Next: Next{Plan: written}, Verdict: Verdict{Run: "r"}})
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(test.freed, s.freed); diff != "" {
					t.Errorf("let go (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(test.stops, s.stops, cmp.AllowUnexported(stop{})); diff != "" {
					t.Errorf("stopped (-want +got):\n%s", diff)
				}
				var notes []string
				for _, e := range s.events {
					if n, ok := e.(Noticed); ok {
						notes = append(notes, n.Text)
					}
				}
				if got := strings.Join(notes, "\n"); got != test.notes {
					t.Errorf("told\n%s\nwant\n%s", got, test.notes)
				}
				if trained := test.freed != nil; (v.Code == 0) != trained {
					t.Errorf("code %d: %s", v.Code, v.Reason)
				}
			})
		})
	}
}
