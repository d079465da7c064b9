package strategy

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/strategy/memory"
)

// drawJob draws a job, its first plan and a policy.
func drawJob(t *rapid.T) (Job, Plan, Policy) {
	ranks := rapid.IntRange(1, 8).Draw(t, "ranks")
	scope := rapid.SampledFrom([]string{"", ScopeGlobal, ScopeDerived}).Draw(t, "scope")
	accumulation := rapid.IntRange(1, 12).Draw(t, "accumulation")
	if scope == ScopeGlobal {
		accumulation *= ranks
	}
	j := Job{Ranks: ranks, LocalRanks: ranks, DataParallel: ranks, Knobs: map[Knob]Range{
		MicroBatchSize:            {Min: rapid.IntRange(1, 3).Draw(t, "min")},
		GradientAccumulationSteps: {Scope: scope},
		DataloaderWorkers:         {},
	}}
	p := Plan{MicroBatchSize: Number(rapid.IntRange(1, 96).Draw(t, "micro")), GradientAccumulationSteps: Number(accumulation), DataloaderWorkers: Number(rapid.IntRange(0, 8).Draw(t, "workers"))}
	if scope == ScopeDerived {
		delete(p, GradientAccumulationSteps)
	}
	for _, k := range []Knob{ActivationCheckpointing, Precision, Sharding, OffloadOptimizer, OffloadParam, OffloadActivations, Allocator, Attention} {
		if rapid.Bool().Draw(t, string(k)) {
			j.Knobs[k] = Range{Values: k.words()}
			p[k] = rapid.SampledFrom(k.words()).Draw(t, "first "+string(k))
		}
	}
	policy := Policy{
		Mode:        rapid.SampledFrom([]Mode{Ladder, Predict}).Draw(t, "mode"),
		Prefer:      rapid.SampledFrom([]Prefer{Speed, Tree}).Draw(t, "prefer"),
		MaxAttempts: rapid.IntRange(1, 60).Draw(t, "max attempts"),
		Numerics:    rapid.SampledFrom([]Numerics{Preserve, MixedPrecision, Any}).Draw(t, "numerics"),
		Never:       rapid.SliceOfN(rapid.SampledFrom([]string{"checkpointing", "shard", "precision", "nvme", "offload_param"}), 0, 2).Draw(t, "never"),
		NVMePath:    rapid.SampledFrom([]string{"", "/scratch"}).Draw(t, "nvme"),
	}
	return j, p, policy
}

// TestWalks lets jobs run out of memory again and again, in changing phases and for changing
// causes, until the walk ends.
func TestWalks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		job, plan, policy := drawJob(t)
		inv := Inventory{Accelerator: rapid.SampledFrom([]string{"cuda", "cpu"}).Draw(t, "accelerator"), BF16: rapid.Bool().Draw(t, "bf16")}
		first, _ := batchOf(plan, job)
		var history []Attempt
		for n := 0; ; n++ {
			if n > policy.MaxAttempts {
				t.Fatalf("attempt %d, and max_attempts = %d", n, policy.MaxAttempts)
			}
			d := Diagnosis{Fatal: true, Rank: 0, Cause: rapid.SampledFrom([]cause.Code{cause.CUDAOOM, cause.HostOOM}).Draw(t, "cause")}
			d.Phase = rapid.SampledFrom([]cause.Phase{cause.Load, cause.Forward, cause.Backward, cause.Optimizer, cause.NoPhase}).Draw(t, "phase")
			d.Fragmented = rapid.Bool().Draw(t, "fragmented")
			if d.Cause == cause.HostOOM && inv.Accelerator == "cpu" {
				d.Device = "cpu"
			}
			failed := (&situation{job: job, history: history}).ranOut()
			if hopeless(plan, failed) {
				t.Fatalf("plan %s runs after %v ran out of memory", plan, failed)
			}
			a := ended(n, plan, d)
			if micro, known := plan.Number(MicroBatchSize); known && rapid.Bool().Draw(t, "measured") {
				a.Measured = []memory.Measurement{ranOutInForward(micro, int64(rapid.IntRange(2, 40).Draw(t, "room"))<<30)}
			}
			history = append(history, a)

			got := Decide(policy, job, history, inv)
			if again := Decide(policy, job, history, inv); !cmp.Equal(got, again) {
				t.Fatalf("two decisions from the same input:\n%s", cmp.Diff(got, again))
			}
			if got.Reason == "" || got.Rule == "" {
				t.Fatalf("a decision without a rule or a reason: %+v", got)
			}
			checkSkips(t, got)
			if !got.Relaunch {
				if got.Code != CodeExhausted {
					t.Fatalf("stopped with %d: %s", got.Code, got.Reason)
				}
				return
			}
			checkBatch(t, job, first, got.Next)
			checkNever(t, policy, got)
			plan = got.Next
		}
	})
}

// checkBatch checks that the samples of an optimizer step are those of the first plan.
func checkBatch(t *rapid.T, job Job, first batch, next Plan) {
	b, _ := batchOf(next, job)
	if b.global() != first.global() {
		t.Fatalf("global batch %d → %d", first.global(), b.global())
	}
	if b.scope == ScopeDerived && first.micro%b.micro != 0 {
		t.Fatalf("derived accumulation: micro batch %d does not divide %d", b.micro, first.micro)
	}
	if _, whole := b.perRank(); !whole {
		t.Fatalf("accumulation %d is not whole on %d ranks", b.accumulation, b.dataParallel)
	}
	if floor := job.Knobs[MicroBatchSize].Min; b.micro < floor && b.micro < first.micro {
		t.Fatalf("micro batch %d below its minimum %d", b.micro, floor)
	}
}

func checkNever(t *rapid.T, p Policy, d Decision) {
	for _, word := range p.Never {
		if string(d.Remedy) == word {
			t.Fatalf("rung %s was taken, and the policy says never", word)
		}
		if _, changed := d.Changed[Knob(word)]; changed {
			t.Fatalf("knob %s was changed, and the policy says never", word)
		}
	}
	if _, changed := d.Changed[Precision]; changed && p.Numerics == Preserve {
		t.Fatal(`precision was changed, and numerics = "preserve"`)
	}
}

func checkSkips(t *rapid.T, d Decision) {
	for _, k := range d.Skipped {
		if k.Reason == "" {
			t.Fatalf("rung %s was skipped without a reason", k.Remedy)
		}
		if k.Remedy == d.Remedy {
			t.Fatalf("rung %s was both skipped and taken", k.Remedy)
		}
	}
}

// TestEveryHistoryEnds: a run is bounded for any ends of its attempts.
func TestEveryHistoryEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy := defaults
		policy.MaxAttempts = rapid.IntRange(1, 8).Draw(t, "max attempts")
		policy.Restarts = rapid.IntRange(0, 4).Draw(t, "restarts")
		plan := plain
		var history []Attempt
		for n := 0; ; n++ {
			if n > 200 {
				t.Fatal("200 attempts, and no end")
			}
			c := rapid.SampledFrom([]cause.Code{cause.CUDAOOM, cause.GPUOccupied, cause.NCCLError, cause.NCCLTimeout, cause.UserError, cause.Unknown, cause.PortInUse, cause.HostOOM}).Draw(t, "cause")
			a := ended(n, plan, Diagnosis{Cause: c, Fatal: true, Rank: -1})
			a.Ended = a.Started.Add(time.Duration(rapid.IntRange(1, 3000).Draw(t, "seconds")) * time.Second)
			history = append(history, a)
			got := Decide(policy, gpt(2), history, h100)
			if !got.Relaunch {
				return
			}
			plan = got.Next
		}
	})
}
