package strategy

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/strategy/memory"
)

// A process's later measurement replaces its earlier one, and the rank that ran out first comes
// before those with higher peaks. Four are kept.
func TestMeasurementsOfAnAttempt(t *testing.T) {
	at := time.Unix(1000, 0)
	fact := func(rank, pid int, seconds int, m memory.Measurement) Fact {
		m.PID = pid
		return Fact{Rank: rank, Time: at.Add(time.Duration(seconds) * time.Second), Source: "probe", Content: (*Measurement)(&m)}
	}
	e := Evidence{Ranks: 6}
	for _, f := range []Fact{
		fact(0, 10, 1, memory.Measurement{Peak: 5, Failed: "forward", Allocated: 90}),
		fact(0, 10, 9, memory.Measurement{Peak: 50, Failed: "backward", Allocated: 80}),
		fact(0, 11, 2, memory.Measurement{Peak: 1}),
		fact(1, 20, 1, memory.Measurement{Peak: 60}),
		fact(2, 30, 3, memory.Measurement{Peak: 40, Failed: "loss"}),
		fact(3, 40, 4, memory.Measurement{Peak: 70}),
		fact(4, 50, 4, memory.Measurement{Peak: 2}),
	} {
		e.Add(f)
	}
	if len(e.Facts) != 6 {
		t.Errorf("%d facts", len(e.Facts))
	}
	type short struct {
		Rank   int
		Peak   int64
		Failed string
	}
	of := func(e *Evidence) (got []short) {
		for _, m := range e.Measured() {
			got = append(got, short{m.Rank, m.Peak, m.Failed})
		}
		return got
	}
	want := []short{{2, 40, "loss"}, {0, 50, "backward"}, {3, 70, ""}, {1, 60, ""}}
	if diff := cmp.Diff(want, of(&e)); diff != "" {
		t.Error(diff)
	}
	// The same evidence from a journal.
	if diff := cmp.Diff(want, of(&Evidence{Ranks: 6, Facts: e.Facts})); diff != "" {
		t.Error(diff)
	}
	if a := (Attempt{Measured: e.Measured()}); a.Peak() != 80 {
		t.Errorf("peak %d", a.Peak())
	}
}

// A measurement has the plan that its process ran with: the effective values, in the words of
// package memory, with accumulation as one rank counts it.
func TestMeasurementHasItsPlan(t *testing.T) {
	fp32 := &memory.TrainedModel{Bytes: map[string]int64{"float32": 100, "int8": 3}}
	job := func(scope string, weights bool) Job {
		return Job{Ranks: 2, DataParallel: 2, Knobs: map[Knob]Range{GradientAccumulationSteps: {Scope: scope}, Precision: {Weights: weights}}}
	}
	for name, test := range map[string]struct {
		job     Job
		attempt Attempt
		m       memory.Measurement
		want    memory.RankPlan
		rate    float64 // samples per second
	}{
		"told": {
			job:     job("", false),
			attempt: Attempt{Plan: Plan{MicroBatchSize: "8", GradientAccumulationSteps: "2", Precision: "bf16", ActivationCheckpointing: "none"}, Observed: Plan{Attention: "sdpa", ActivationCheckpointing: "full"}},
			m:       memory.Measurement{Model: fp32, Autocast: "bfloat16", Batch: 8, Calls: 2, StepSeconds: .5},
			want:    memory.RankPlan{MicroBatch: 8, Accumulation: 2, Weights: "fp32", Compute: "bf16", Checkpointing: "full", Attention: "sdpa", DataParallel: 2},
			rate:    64,
		},
		"global": {
			job:     job(ScopeGlobal, false),
			attempt: Attempt{Plan: Plan{MicroBatchSize: "4", GradientAccumulationSteps: "8", Precision: "tf32"}},
			m:       memory.Measurement{Model: fp32, Batch: 4, Calls: 4},
			want:    memory.RankPlan{MicroBatch: 4, Accumulation: 4, Weights: "fp32", Compute: "fp32", DataParallel: 2},
		},
		"nobody told": {
			job:  Job{Ranks: 1},
			m:    memory.Measurement{Model: &memory.TrainedModel{Bytes: map[string]int64{"bfloat16": 1}}, Batch: 16, Calls: 4, EvaluationBatch: 32, StepSeconds: 2},
			want: memory.RankPlan{MicroBatch: 16, Accumulation: 4, Weights: "bf16", Compute: "bf16", DataParallel: 1, Evaluation: 32},
			rate: 32,
		},
		"ranks of its own": {
			job:     Job{Ranks: 1, DataParallel: 1},
			attempt: Attempt{World: 4, Plan: Plan{MicroBatchSize: "2", Sharding: "zero2"}},
			m:       memory.Measurement{Model: fp32, Batch: 2, Calls: 1, StepSeconds: 1},
			want:    memory.RankPlan{MicroBatch: 2, Accumulation: 1, Weights: "fp32", Compute: "fp32", DataParallel: 4, Sharding: "zero2", DeepSpeed: true},
			rate:    8,
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.attempt.Measured = []memory.Measurement{test.m}
			if diff := cmp.Diff(test.want, test.job.Measured(test.attempt)[0].Plan); diff != "" {
				t.Error(diff)
			}
			if rate := test.job.Throughput(test.attempt); rate != test.rate {
				t.Errorf("%g samples a second, want %g", rate, test.rate)
			}
		})
	}
}
