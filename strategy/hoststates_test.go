package strategy

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy/cause"
)

// statesByHook is a job whose process can keep the optimizer's states in host memory.
func statesByHook() Job {
	j := codeOnly()
	j.Knobs[OffloadOptimizer] = Range{By: ByHook, Values: []Value{"none", "cpu"}}
	return j
}

// Memory that runs out in the optimizer's step, where activations are gone, is answered by states in host memory: in a job
// without a setting for it, and whatever shards it.
func TestStatesLeaveAfterTheOptimizersStep(t *testing.T) {
	start := Plan{Allocator: "expandable"}
	zero := statesByHook()
	zero.Knobs[Sharding] = Range{Values: []Value{"none", "zero1", "zero2", "zero3"}}
	settings := Plan{ActivationCheckpointing: "none", OffloadActivations: "none", Attention: "sdpa", Precision: "bf16"}
	for name, test := range map[string]struct {
		job     Job
		refused map[Knob]string
		never   []string
		want    Plan
		skipped string
	}{
		"a plain script":             {statesByHook(), nil, nil, Plan{OffloadOptimizer: "cpu"}, ""},
		"a job that could use ZeRO":  {zero, nil, nil, Plan{OffloadOptimizer: "cpu"}, ""},
		"the process refuses":        {statesByHook(), map[Knob]string{OffloadOptimizer: "Muon is not known to treat each parameter by itself"}, nil, nil, "Muon is not known"},
		"the policy bars the remedy": {statesByHook(), nil, []string{"offload-optimizer"}, nil, "recovery.never"},
		"the policy bars the knob":   {statesByHook(), nil, []string{"offload_optimizer"}, nil, "recovery.never"},
	} {
		t.Run(name, func(t *testing.T) {
			p := defaults
			p.Never = test.never
			a := asked(told(ended(0, start, oom(cause.Optimizer)), settings, test.refused))
			d := Decide(p, test.job, []Attempt{a}, h100)
			if d.Relaunch != (test.want != nil) || d.Relaunch && (d.Next[OffloadOptimizer] != "cpu" || d.Next[Sharding] != "" || d.Training != Exact) {
				t.Errorf("%s: %v, %s", d.Reason, d.Next, d.Training)
			}
			skip := slices.IndexFunc(d.Skipped, func(s Skip) bool { return s.Remedy == RemedyOffloadOptimizer })
			if test.skipped != "" && (skip < 0 || !strings.Contains(d.Skipped[skip].Reason, test.skipped)) {
				t.Errorf("skipped %+v", d.Skipped)
			}
		})
	}
}

// In place the states of any job may leave, unless its plan has them in host memory already.
func TestStatesLeaveInPlace(t *testing.T) {
	p := Policy{Mode: Predict, InPlace: true}
	recipe := statesByHook()
	recipe.Knobs[OffloadOptimizer] = Range{Values: []Value{"none", "cpu", "nvme"}}
	for name, test := range map[string]struct {
		job         Job
		plan        Plan
		accelerator string
		want        bool
	}{
		"by the hook":      {statesByHook(), nil, "cuda", true},
		"beside a setting": {recipe, Plan{OffloadOptimizer: "none"}, "cuda", true},
		"on the CPU":       {statesByHook(), nil, "cpu", false},
		"planned":          {statesByHook(), Plan{OffloadOptimizer: "cpu"}, "cuda", false},
		"not known":        {codeOnly(), nil, "cuda", false},
	} {
		if got := slices.Contains(AllowInPlace(p, test.job, nil, test.plan, test.accelerator).Remedies, RemedyOffloadOptimizer); got != test.want {
			t.Errorf("%s: allowed %t", name, got)
		}
	}
}

func TestSentencesAboutStatesInPlace(t *testing.T) {
	one := InPlace{Rank: 1, Remedy: RemedyOffloadOptimizer, Phase: "optimizer", Step: 3, LastStep: 3, Times: 1, Requested: 2 << 30, Elements: 1, Longest: 1}
	if got, want := one.Sentence(), "rank 1: out of memory in optimizer at step 3 (tried to allocate 2.0 GiB); step repeated with optimizer states in host memory"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if got := one.Later(); got != "" {
		t.Errorf("later: %q", got)
	}
	kept, words := KeptInPlace([]InPlace{one, repeat(0, 1, 4096, 64)})
	if want := "large inputs now recompute activations and all steps now keep optimizer states in host memory"; words != want || kept[OffloadOptimizer] != "cpu" || kept[ActivationCheckpointing] != "full" {
		t.Errorf("kept %v: %q", kept, words)
	}
	if got := (&InPlaceOrders{Armed: Arm(nil, []InPlace{one})}).ArmedWords(); got != "offload-optimizer" {
		t.Errorf("armed: %q", got)
	}
}
