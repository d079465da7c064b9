package strategy

import (
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/strategy/cause"
)

const gib = int64(1) << 30

// batchJob is a job that can only change its batch.
func batchJob(ceiling int64) Job {
	return Job{
		Knobs: map[Knob]Range{MicroBatchSize: {Min: 1}, GradientAccumulationSteps: {Min: 1}, EvalBatchSize: {Min: 1}},
		Ranks: 1, LocalRanks: 1, DataParallel: 1, Ceiling: ceiling,
	}
}

// tooLarge is an attempt that requested bytes at once.
func tooLarge(bytes, capacity int64, phase cause.Phase, plan Plan) Attempt {
	d := Diagnosis{Cause: cause.CUDAOOM, Fatal: true, Phase: phase, Rank: 0, Figures: cause.Figures{Requested: &bytes}}
	if capacity > 0 {
		d.Capacity = &capacity
	}
	return Attempt{Plan: plan, Diagnosis: d, Started: time.Unix(0, 0), Ended: time.Unix(60, 0)}
}

// A single request that is larger than the available memory stays too large for every batch that
// arithmetic rules out; such a batch is not tried.
func TestBatchIsSkippedIfItsRequestCannotFit(t *testing.T) {
	batch := func(micro, accumulation int) Plan {
		return Plan{MicroBatchSize: Number(micro), GradientAccumulationSteps: Number(accumulation), EvalBatchSize: "64"}
	}
	for name, c := range map[string]struct {
		wanted, capacity, ceiling int64
		phase                     cause.Phase
		plan                      Plan
		want                      string // the next micro batch, or eval batch
	}{
		"fits by itself":         {wanted: 7 * gib, capacity: 8 * gib, plan: batch(64, 1), want: "32"},
		"as large as the device": {wanted: 8 * gib, capacity: 8 * gib, plan: batch(64, 1), want: "32"},
		"twice the device":       {wanted: 16 * gib, capacity: 8 * gib, plan: batch(64, 1), want: "32"},
		"more than twice":        {wanted: 17 * gib, capacity: 8 * gib, plan: batch(64, 1), want: "16"},
		"many times":             {wanted: 100 * gib, capacity: 8 * gib, plan: batch(64, 1), want: "4"},
		"the user's ceiling":     {wanted: 7 * gib, capacity: 8 * gib, ceiling: gib, plan: batch(64, 1), want: "8"},
		"nothing says the room":  {wanted: 100 * gib, plan: batch(64, 1), want: "32"},
		"not a power of two":     {wanted: 30 * gib, capacity: 8 * gib, plan: batch(12, 1), want: "3"},
		"evaluation":             {wanted: 100 * gib, capacity: 8 * gib, phase: cause.Eval, plan: batch(8, 1), want: "4"},
		// 3 GiB of 1: not with one sample, unless all samples are compared with each other.
		"perhaps squared":    {wanted: 3 * gib, capacity: gib, plan: batch(2, 1), want: "1"},
		"not even squared":   {wanted: 5 * gib, capacity: gib, plan: batch(2, 1), want: ""},
		"accumulated before": {wanted: 64 * gib, capacity: 8 * gib, plan: batch(16, 4), want: "2"},
	} {
		t.Run(name, func(t *testing.T) {
			phase, knob := c.phase, MicroBatchSize
			if phase == "" {
				phase = cause.Forward
			} else {
				knob = EvalBatchSize
			}
			policy := Policy{Mode: Ladder, MaxAttempts: 20, Numerics: MixedPrecision}
			d := Decide(policy, batchJob(c.ceiling), []Attempt{tooLarge(c.wanted, c.capacity, phase, c.plan)}, Inventory{Accelerator: "cuda"})
			if c.want == "" {
				i := len(d.Skipped)
				for j, k := range d.Skipped {
					if k.Remedy == RemedyMicroBatch {
						i = j
					}
				}
				if d.Relaunch || i == len(d.Skipped) || !strings.Contains(d.Skipped[i].Reason, "even with 1 it would be more than 1.0 GiB") {
					t.Errorf("relaunch %v, skipped %v", d.Relaunch, d.Skipped)
				}
				return
			}
			if got := string(d.Next[knob]); got != c.want {
				t.Errorf("%s %s, want %s: %s", knob, got, c.want, d.Reason)
			}
			if micro, _ := d.Next.Number(MicroBatchSize); micro > 0 && knob == MicroBatchSize {
				before, _ := batchOf(c.plan, batchJob(0))
				after, _ := batchOf(d.Next, batchJob(0))
				if before.global() != after.global() {
					t.Errorf("global batch %d, was %d", after.global(), before.global())
				}
			}
		})
	}
}

// The scores of eager attention disappear with another kernel, whatever their size.
func TestAnotherAttentionKernelMakesTheRequestUnknown(t *testing.T) {
	job := batchJob(0)
	job.Knobs[Attention] = Range{Values: []Value{"eager", "sdpa"}}
	plan := Plan{MicroBatchSize: "64", GradientAccumulationSteps: "1", Attention: "eager"}
	d := Decide(Policy{Mode: Ladder, MaxAttempts: 20}, job, []Attempt{tooLarge(100*gib, 8*gib, cause.Forward, plan)}, Inventory{Accelerator: "cuda"})
	if d.Next[MicroBatchSize] != "32" || d.Next[Attention] != "sdpa" {
		t.Errorf("next %v", d.Next)
	}
}

// A batch of absurd size is handled at once, and never overflows.
func TestVastBatchIsNotSplit(t *testing.T) {
	start := time.Now()
	for _, c := range []struct {
		micro, accumulation int
		reason              string
	}{
		{999_999_999_989, 1, ""}, // a prime
		{1_000_000_000_000, 1, ""},
		{1_000_000_000_000, 1_000_000_000_000, "too large to be split up"},
		{1 << 62, 4, "too large to be split up"},
	} {
		plan := Plan{MicroBatchSize: Number(c.micro), GradientAccumulationSteps: Number(c.accumulation)}
		for _, o := range Survey(Policy{}, batchJob(0), plan, Inventory{Accelerator: "cuda"}) {
			if o.Remedy != RemedyMicroBatch {
				continue
			}
			if o.Available != (c.reason == "") || !strings.Contains(o.Reason, c.reason) {
				t.Errorf("%d × %d: %+v", c.micro, c.accumulation, o)
			}
		}
	}
	if took := time.Since(start); took > time.Minute {
		t.Errorf("took %s", took)
	}
}

// The divisors by square root agree with those by plain division.
func TestDivisors(t *testing.T) {
	for n := 1; n <= 500; n++ {
		var want []int
		for d := n; d >= 1; d-- {
			if n%d == 0 {
				want = append(want, d)
			}
		}
		got := divisors(n)
		if len(got) != len(want) {
			t.Fatalf("%d: %v, want %v", n, got, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("%d: %v, want %v", n, got, want)
			}
		}
	}
}
