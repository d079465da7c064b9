package strategy

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gpurun/gpurun/strategy/cause"
)

// written is a job whose written plan is known.
func written(p Plan) Job {
	j := gpt(1)
	j.Written = p
	return j
}

func observed(a Attempt, p Plan) Attempt { a.Observed = p; return a }

func halted(a Attempt) Attempt { a.Halted, a.Diagnosis = true, Diagnosis{Rank: -1}; return a }

func TestFirstValueOfASettingCounts(t *testing.T) {
	var ev Evidence
	for _, s := range []ObservedSetting{
		{Knob: MicroBatchSize, Value: "8"}, {Fresh: true}, {Knob: MicroBatchSize, Value: "4"}, {Knob: Precision, Value: "bf16"},
	} {
		ev.Add(Fact{Content: &s})
	}
	if diff := cmp.Diff(Plan{MicroBatchSize: "8", Precision: "bf16"}, ev.Observed(Job{})); diff != "" {
		t.Error(diff)
	}
}

// A change without effect does not count as tried: the walk continues from the values that the
// job really used, and does not change the knob again.
func TestIneffectiveChanges(t *testing.T) {
	full := plain.With(Plan{ActivationCheckpointing: "full", Allocator: "expandable"})
	smaller := full.With(Plan{MicroBatchSize: "4", GradientAccumulationSteps: "4"})
	for _, test := range []struct {
		name            string
		history         []Attempt
		rule            string
		remedy          Remedy
		changed, reason string
		skipped         string
		next            Plan
	}{
		{
			name:    "checkpointing",
			history: []Attempt{ended(0, plain, oom(cause.Backward)), observed(ended(1, full, oom(cause.Backward)), Plan{ActivationCheckpointing: "none"})},
			rule:    "out-of-memory", remedy: RemedyMicroBatch,
			reason:  "checkpointing full did not take effect, the job uses none → micro batch 8→4, accumulation 2→4 (global batch 16 kept)",
			changed: "micro batch 8→4, accumulation 2→4, checkpointing full→none", skipped: "checkpointing full did not take effect in attempt 1: the job used none",
			next: smaller.With(Plan{ActivationCheckpointing: "none"}),
		},
		{
			name:    "the micro batch, seen at once",
			history: []Attempt{ended(0, full, oom(cause.Backward)), observed(halted(ended(1, smaller, Diagnosis{})), Plan{MicroBatchSize: "8"})},
			rule:    "did-not-take", remedy: RemedyPrecision,
			reason:  "attempt 1: micro batch 4 did not take effect, the job uses 8; attempt 0: CUDA out of memory in backward on rank 0 → precision fp32→bf16",
			changed: "micro batch 4→8, accumulation 4→2, precision fp32→bf16", skipped: "micro batch 4 did not take effect in attempt 1: the job used 8",
			next: full.With(Plan{Precision: "bf16"}),
		},
		{
			name:    "accumulation alone, which ran out of memory first",
			history: []Attempt{ended(0, full, oom(cause.Backward)), observed(ended(1, smaller, oom(cause.Backward)), Plan{MicroBatchSize: "4", GradientAccumulationSteps: "2"})},
			rule:    "did-not-take", remedy: RemedyPrecision,
			reason:  "attempt 1: accumulation 4 did not take effect, the job uses 2; attempt 0:",
			skipped: "micro-batch: accumulation 4 did not take effect in attempt 1", next: full.With(Plan{Precision: "bf16"}),
		},
		{
			name:    "nothing of the batch is left by a later change",
			history: []Attempt{ended(0, full, oom(cause.Backward)), observed(halted(ended(1, smaller, Diagnosis{})), Plan{MicroBatchSize: "8"}), ended(2, full.With(Plan{Precision: "bf16"}), oom(cause.Backward))},
			rule:    "out-of-memory", remedy: "", reason: "every remedy was tried or is impossible", skipped: "micro batch 4 did not take effect in attempt 1",
		},
		{
			name:    "a batch that was misread is not touched",
			history: []Attempt{observed(ended(0, full, oom(cause.Backward)), Plan{MicroBatchSize: "16"})},
			rule:    "out-of-memory", remedy: RemedyPrecision, skipped: "micro batch was read as 8, and the job reported in attempt 0 that it used 16",
			next: full.With(Plan{Precision: "bf16"}),
		},
		{
			name:    "trained nevertheless",
			history: []Attempt{ended(0, plain, oom(cause.Backward)), observed(ended(1, full, Diagnosis{Rank: -1}), Plan{ActivationCheckpointing: "none"})},
			rule:    "trained", reason: "attempt 1: trained; checkpointing full did not take effect, the job uses none",
		},
		{
			name:    "what is observed as it was asked",
			history: []Attempt{ended(0, full, oom(cause.Backward)), observed(ended(1, smaller, oom(cause.Backward)), Plan{MicroBatchSize: "4", GradientAccumulationSteps: "4"})},
			rule:    "out-of-memory", remedy: RemedyMicroBatch, next: smaller.With(Plan{MicroBatchSize: "2", GradientAccumulationSteps: "8"}),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := Decide(defaults, written(test.history[0].Plan), test.history, h100)
			if got.Rule != test.rule || got.Remedy != test.remedy || !strings.Contains(got.Reason, test.reason) {
				t.Errorf("rule %q, rung %q: %s", got.Rule, got.Remedy, got.Reason)
			}
			if test.changed != "" && got.Changed.String() != test.changed {
				t.Errorf("changed %q, want %q", got.Changed, test.changed)
			}
			if test.next != nil {
				if diff := cmp.Diff(test.next, got.Next); diff != "" {
					t.Error(diff)
				}
			}
			var skips []string
			for _, k := range got.Skipped {
				skips = append(skips, string(k.Remedy)+": "+k.Reason)
			}
			if all := strings.Join(skips, "; "); !strings.Contains(all, test.skipped) {
				t.Errorf("skipped %q, want %q in it", all, test.skipped)
			}
		})
	}
}

func TestIneffectiveAttemptIsNotCounted(t *testing.T) {
	full := plain.With(Plan{ActivationCheckpointing: "full"})
	history := []Attempt{ended(0, plain, oom(cause.Backward)), observed(ended(1, full, oom(cause.Backward)), Plan{ActivationCheckpointing: "none"})}
	policy := defaults
	policy.MaxAttempts = 2
	if got := Decide(policy, written(plain), history, h100); !got.Relaunch {
		t.Error(got.Reason)
	}
	policy.MaxAttempts = 1
	if got := Decide(policy, written(plain), history, h100); got.Rule != "max-attempts" {
		t.Error(got.Rule, got.Reason)
	}
}

func TestJobThatDidNothingHasNotTrained(t *testing.T) {
	a := ended(0, plain, Diagnosis{Rank: -1})
	a.Nothing = "Error. Experiment already exists"
	got := Decide(defaults, gpt(1), []Attempt{a}, h100)
	if got.Outcome != Failed || got.Code != CodeFailed || !strings.Contains(got.Reason, "it did nothing: Error. Experiment already exists") {
		t.Errorf("%+v", got)
	}
}

// TestWalksWithIneffectiveKnobs: changes to some knobs of a job have no effect. No decision
// continues with a batch that is not the job's, no knob is tried again once it was found, and the
// walk ends.
func TestWalksWithIneffectiveKnobs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		job, plan, policy := drawJob(t)
		job.Written = plan
		deaf := map[Knob]bool{}
		for _, k := range Knobs {
			if _, known := plan[k]; known && rapid.Bool().Draw(t, "deaf "+string(k)) {
				deaf[k] = true
			}
		}
		inv := Inventory{Accelerator: "cuda", BF16: true, At: time.Time{}}
		first, _ := batchOf(plan, job)
		var history []Attempt
		known := map[Knob]bool{}
		for n := 0; ; n++ {
			if n > policy.MaxAttempts+len(deaf)+1 {
				t.Fatalf("attempt %d, and max_attempts = %d with %d deaf knobs", n, policy.MaxAttempts, len(deaf))
			}
			a := ended(n, plan, oom(rapid.SampledFrom([]cause.Phase{cause.Forward, cause.Backward, cause.Optimizer}).Draw(t, "phase")))
			a.Observed = Plan{}
			for k := range deaf {
				a.Observed[k] = job.Written[k]
				if plan[k] != job.Written[k] {
					if known[k] {
						t.Fatalf("attempt %d turns %s again, which did not take effect before", n, k)
					}
					known[k] = true
				}
			}
			if job.BatchBroken(plan, a.Observed) {
				a = halted(a)
			}
			history = append(history, a)
			got := Decide(policy, job, history, inv)
			if !got.Relaunch {
				return
			}
			checkBatch(t, job, first, got.Next)
			plan = got.Next
		}
	})
}

// nanoGPT's accumulation is that of all ranks, and each of them reports its own part.
func TestAccumulationOfAllRanksIsComparedWithEachRanksPart(t *testing.T) {
	plan := Plan{MicroBatchSize: "16", GradientAccumulationSteps: "32"}
	written := Plan{MicroBatchSize: "32", GradientAccumulationSteps: "16"}
	for _, test := range []struct {
		name                 string
		scope                string
		ranks, world         int
		asked                Plan
		said                 Value
		ineffective, misread bool
	}{
		{"changed", ScopeGlobal, 2, 2, plan, "16", false, false},
		{"changed in vain", ScopeGlobal, 2, 2, plan, "8", true, false},
		{"as written", ScopeGlobal, 2, 2, written, "8", false, false},
		{"misread", ScopeGlobal, 2, 2, written, "16", false, true},
		{"of ranks that the job started", ScopeGlobal, 1, 4, plan, "8", false, false},
		{"one rank", ScopeGlobal, 1, 1, plan, "32", false, false},
		{"of each rank", "", 2, 2, plan, "32", false, false},
	} {
		j := Job{Ranks: test.ranks, DataParallel: test.ranks, Written: written, Knobs: map[Knob]Range{MicroBatchSize: {}, GradientAccumulationSteps: {Scope: test.scope}}}
		ev := Evidence{Plan: test.asked, Ranks: test.ranks}
		for rank := range test.ranks {
			ev.Add(Fact{Rank: rank, Source: "probe", Content: &ProcessReport{PID: 10 + rank, World: test.world, Settings: Plan{GradientAccumulationSteps: test.said}}})
		}
		observed := ev.Observed(j)
		if lost := j.Ineffective(test.asked, observed); len(lost) > 0 != test.ineffective || j.BatchBroken(test.asked, observed) != test.ineffective {
			t.Errorf("%s: did not take effect: %v", test.name, lost)
		}
		if misread := j.Misread(test.asked, observed); len(misread) > 0 != test.misread {
			t.Errorf("%s: misread: %v", test.name, misread)
		}
	}
}
