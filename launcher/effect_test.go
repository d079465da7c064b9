package launcher

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// If the job ignores a change to the batch, the attempt ends at once, since it would train something else.
// Other differing settings are reported, and the attempt continues.
func TestReportedSettingsAreCompared(t *testing.T) {
	says := func(p strategy.ObservedSetting) act {
		p.Text = "its words"
		return act{time.Minute, strategy.Fact{Rank: 0, Source: "stdout", Content: &p}}
	}
	micro := func(v strategy.Value) act {
		return says(strategy.ObservedSetting{Knob: strategy.MicroBatchSize, Value: v})
	}
	written := strategy.Plan{strategy.MicroBatchSize: "8", strategy.GradientAccumulationSteps: "1", strategy.Precision: "fp32"}
	smaller := written.With(strategy.Plan{strategy.MicroBatchSize: "4", strategy.GradientAccumulationSteps: "2"})
	well := []act{exit(time.Hour, 0, 0), exit(time.Hour, 1, 0)}
	for name, test := range map[string]struct {
		second []act // reports of the job in the second attempt
		from   string
		plans  []strategy.Plan
		notes  []string
	}{
		"not the micro batch that was asked for": {
			second: []act{micro("8")}, plans: []strategy.Plan{written, smaller, written.With(strategy.Plan{strategy.Precision: "bf16"})},
			notes: []string{"warning: micro batch 4 did not take effect, the job uses 8 (its words)", "the job would train with another global batch: all ranks are stopped"},
		},
		"as asked":                  {second: []act{micro("4")}, plans: []strategy.Plan{written, smaller}},
		"as asked, then another":    {second: []act{micro("4"), micro("8")}, plans: []strategy.Plan{written, smaller}},
		"a knob that was not known": {second: []act{says(strategy.ObservedSetting{Knob: strategy.Attention, Value: "sdpa"})}, plans: []strategy.Plan{written, smaller}},
		"a knob that was misread": {
			second: []act{says(strategy.ObservedSetting{Knob: strategy.Precision, Value: "bf16"})}, plans: []strategy.Plan{written, smaller},
			notes: []string{"warning: gpurun reads precision fp32 from the job, but the job reports bf16: gpurun will not change it (its words)"},
		},
		"that it starts anew, with a checkpoint": {
			second: []act{says(strategy.ObservedSetting{Fresh: true}), says(strategy.ObservedSetting{Fresh: true})}, from: "ckpt-3", plans: []strategy.Plan{written, smaller},
			notes: []string{"warning: the job was asked to resume from ckpt-3, but reports that it starts from the beginning: its words"},
		},
		"that it starts anew, without one": {second: []act{says(strategy.ObservedSetting{Fresh: true})}, plans: []strategy.Plan{written, smaller}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &stage{t: t, scripts: []script{
					{acts: []act{raised(time.Minute, 0, cause.CUDAOOM), exit(time.Minute, 0, 1), exit(time.Minute, 1, 1)}},
					{acts: append(test.second, well...)}, {acts: well},
				}}
				l := newLauncher(s)
				s.inv.Checkpoint, s.inv.BF16 = test.from, true
				l.Job.Written = written
				l.Job.Knobs[strategy.Precision] = strategy.Range{Values: []strategy.Value{"fp32", "bf16"}}
				v, err := l.Run(t.Context(), State{Next: Next{Plan: written}})
				if err != nil || v.Outcome != strategy.Trained {
					t.Fatalf("verdict %+v, %v", v, err)
				}
				if diff := cmp.Diff(test.plans, s.applied); diff != "" {
					t.Error(diff)
				}
				var notes []string
				for _, e := range s.events {
					if n, ok := e.(Noticed); ok {
						notes = append(notes, n.Text)
					}
				}
				if diff := cmp.Diff(test.notes, notes); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// Padding in a later step makes a plan equal on average, and so do samples that depend on each other: there
// is one notice, and the verdict has it.
func TestLatePaddingIsReportedOnce(t *testing.T) {
	said := func(after time.Duration, uniform string) act {
		return act{after, strategy.Fact{Rank: 0, Source: "probe", Content: &strategy.ProcessReport{PID: 100, Loss: &strategy.LossSeen{Scale: strategy.ScaleKept, Uniform: uniform}}}}
	}
	mixed := said(time.Minute, "yes")
	strategy.As[*strategy.ProcessReport](mixed.fact).Loss.Rows, strategy.As[*strategy.ProcessReport](mixed.fact).Loss.RowsReason = "no", "sort mixes the samples of a batch"
	const notice = "the plan is equal on average: the batches are padded and the mean is taken per micro batch"
	for name, test := range map[string]struct {
		second []act
		class  strategy.Training
		notes  []string
	}{
		"one shape":      {[]act{said(time.Minute, "yes"), said(time.Hour, "yes")}, strategy.Exact, nil},
		"padded":         {[]act{said(time.Minute, "yes"), said(time.Hour, "no"), said(2*time.Hour, "no")}, strategy.Average, []string{notice}},
		"padded at once": {[]act{said(time.Minute, "no")}, strategy.Average, []string{notice}},
		"samples mixed":  {[]act{mixed}, strategy.Average, []string{"the plan is equal on average: sort mixes the samples of a batch"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &stage{t: t, scripts: []script{
					{acts: []act{said(time.Second, "yes"), raised(time.Minute, 0, cause.CUDAOOM), exit(time.Minute, 0, 1), exit(time.Minute, 1, 1)}},
					{acts: append(test.second, exit(3*time.Hour, 0, 0), exit(3*time.Hour, 1, 0))},
				}}
				l := newLauncher(s)
				written := strategy.Plan{strategy.MicroBatchSize: "8", strategy.GradientAccumulationSteps: "1"}
				l.Job.Written, l.Job.Loss = written, strategy.Loss{Class: strategy.Exact}
				v, err := l.Run(t.Context(), State{Next: Next{Plan: written}})
				if err != nil || v.Outcome != strategy.Trained || len(v.Attempts) != 2 {
					t.Fatalf("verdict %+v, %v", v, err)
				}
				if v.Attempts[0].Training != strategy.Exact || v.Attempts[1].Training != test.class {
					t.Errorf("the attempts are %s and %s, want exact and %s", v.Attempts[0].Training, v.Attempts[1].Training, test.class)
				}
				var notes []string
				for _, e := range s.events {
					switch e := e.(type) {
					case Noticed:
						notes = append(notes, e.Text)
					case Decided:
						if e.Decision.Relaunch && e.Decision.Training != strategy.Exact {
							t.Errorf("the journal has %s", e.Decision.Training)
						}
					}
				}
				if diff := cmp.Diff(test.notes, notes); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}
