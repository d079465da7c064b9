package strategy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/strategy/cause"
)

// The hook computes a large cross entropy in parts: after checkpointing, exactly, and never where
// the process refuses, the policy bars it, or the job has shown that it cannot be.
func TestCrossEntropyInParts(t *testing.T) {
	start := Plan{Allocator: "expandable"}
	full := start.With(Plan{ActivationCheckpointing: "full"})
	parts := full.With(Plan{LossParts: "on"})
	seen := Plan{ActivationCheckpointing: "full", OffloadActivations: "none", Attention: "sdpa", Precision: "fp32"}
	first := asked(told(ended(0, full, oom(cause.Backward)), seen, nil))
	wrote := "the job writes to the logits after the loss"
	for name, test := range map[string]struct {
		history []Attempt
		never   []string
		next    Value // of loss_parts; empty: another remedy is taken
		reason  string
	}{
		"taken": {history: []Attempt{first}, next: "on", reason: "cross entropy in parts off→on"},
		"no large logits": {
			history: []Attempt{asked(told(first, seen, map[Knob]string{LossParts: "no call of cross_entropy had large logits"}))},
		},
		"barred by the policy":         {history: []Attempt{first}, never: []string{"loss-parts"}},
		"barred by the name of knob":   {history: []Attempt{first}, never: []string{"loss_parts"}},
		"loading holds no logits":      {history: []Attempt{asked(told(ended(0, full, oom(cause.Load)), seen, nil))}},
		"taken, and it was not enough": {history: []Attempt{first, told(ended(1, parts, oom(cause.Backward)), seen.With(Plan{LossParts: "on"}), nil)}},
		"the job writes to its logits": {
			history: []Attempt{first, told(ended(1, parts, Diagnosis{Cause: cause.UserError, Fatal: true}), seen, map[Knob]string{LossParts: wrote})},
			reason:  "attempt 1: " + wrote + "; attempt 0: CUDA out of memory in backward on rank 0 → ",
		},
	} {
		job := codeOnly()
		job.Knobs[LossParts] = Range{By: ByHook, Values: []Value{"off", "on"}}
		d := Decide(Policy{Mode: Ladder, MaxAttempts: 20, Numerics: MixedPrecision, Never: test.never}, job, test.history, Inventory{Accelerator: "cuda"})
		on := d.Next[LossParts]
		if on == "off" {
			on = ""
		}
		if before := test.history[len(test.history)-1].Plan[LossParts]; before == "on" && d.Remedy != RemedyLossParts && on == "on" {
			on = "" // kept, and another remedy is added
		}
		if on != test.next || (d.Remedy == RemedyLossParts) != (test.next == "on") || !strings.Contains(d.Reason, test.reason) {
			t.Errorf("%s: %s %v: %s", name, d.Remedy, d.Next, d.Reason)
		}
		if d.Remedy == RemedyLossParts && d.Training != Exact {
			t.Errorf("%s: the training is %s", name, d.Training)
		}
	}
}

// Whether a plan computes its loss in parts reaches the memory model; a process that reports
// nothing ran without.
func TestMemoryPlanHasLossInParts(t *testing.T) {
	for v, want := range map[Value]string{"on": "on", "off": "", "": ""} {
		if got := MemoryPlan(Plan{LossParts: v}).LossParts; got != want {
			t.Errorf("%q becomes %q, want %q", v, got, want)
		}
	}
}

// A shortage that was foreseen is no failure, and later ones of the loss and the optimizer name how
// they were answered.
func TestForeseenShortagesReadAsSuch(t *testing.T) {
	for want, one := range map[string]InPlace{
		"rank 1: little memory left for the optimizer at step 0; step done a few parameters at a time":                                {Rank: 1, Phase: "optimizer", Times: 1},
		"rank 1: out of memory in optimizer at step 0 (tried to allocate 2.0 GiB); step repeated a few parameters at a time (0.50 s)": {Rank: 1, Phase: "optimizer", Times: 1, Requested: 2 << 30, Seconds: Seconds(time.Second / 2)},
		"rank 1: little memory left for the loss at step 3; forward repeated with activation checkpointing (0.50 s)": {
			Rank: 1, Remedy: RemedyCheckpointing, Phase: "loss", Step: 3, Seconds: Seconds(time.Second / 2), Elements: 64, Longest: 8,
		},
		"rank 1: not enough memory for the loss at step 3 (tried to allocate 2.0 GiB); step done with the loss in parts (0.50 s)": {Rank: 1, Remedy: RemedyLossParts, Phase: "loss", Step: 3, Requested: 2 << 30, Seconds: Seconds(time.Second / 2)},
	} {
		if got := one.Sentence(); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
	short := InPlace{Rank: 1, Remedy: RemedyLossParts, Phase: "loss", Times: 1, Seconds: Seconds(time.Second)}
	failed := short
	failed.Requested = 1 << 30
	for want, all := range map[string][]InPlace{
		"1 step done in place with the loss in parts (1.00 s)":     {short},
		"1 step repeated in place with the loss in parts (1.00 s)": {short, failed},
	} {
		if got := InPlaceWords(all); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}

// A fused loss changes the numerics: it is taken only with numerics = "any", as the last groups are.
func TestFusedLossOnlyByConsent(t *testing.T) {
	job := Job{Ranks: 1, LocalRanks: 1, DataParallel: 1, Written: Plan{FusedLoss: "off"}, Knobs: map[Knob]Range{FusedLoss: {Values: []Value{"off", "on"}}}}
	for numerics, want := range map[Numerics]string{
		Preserve: `recovery.numerics = "preserve" keeps the loss; "any" allows it`, MixedPrecision: `recovery.numerics = "mixed-precision" keeps the loss; "any" allows it`, Any: "",
	} {
		d := Decide(Policy{MaxAttempts: 20, Numerics: numerics}, job, []Attempt{ended(0, job.Written, oom(cause.Backward))}, Inventory{Accelerator: "cuda"})
		if d.Relaunch != (want == "") || !strings.Contains(fmt.Sprint(d.Skipped), want) {
			t.Errorf("%s: %s %v: %+v", numerics, d.Remedy, d.Next, d.Skipped)
		}
		if d.Relaunch && (d.Remedy != RemedyFusedLoss || d.Training != Changed) {
			t.Errorf("%s: %s, %s", numerics, d.Remedy, d.Training)
		}
	}
	missing := Inventory{Accelerator: "cuda", Missing: map[Remedy]string{RemedyFusedLoss: "the job's interpreter has no liger-kernel"}}
	if d := Decide(Policy{MaxAttempts: 20, Numerics: Any}, job, []Attempt{ended(0, job.Written, oom(cause.Backward))}, missing); d.Relaunch {
		t.Errorf("%s: %s", d.Remedy, d.Reason)
	}
	if got := MemoryPlan(Plan{FusedLoss: "on", LossParts: "on"}).LossParts; got != "fused" {
		t.Errorf("the memory plan has %q", got)
	}
}
