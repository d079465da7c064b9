package recipes_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// TestFamilies: the sets of a knob's values within which a checkpoint survives a change.
func TestFamilies(t *testing.T) {
	hf := catalogued(t, "hf-trainer")
	for k, want := range map[strategy.Knob][][]strategy.Value{
		strategy.Sharding:     {{"none"}, {"zero1", "zero2"}, {"zero3"}},
		strategy.OffloadParam: {{"none", "cpu"}, {"nvme"}},
		strategy.Optimizer:    nil,
	} {
		families, reason, fragile := hf.Families(k)
		if diff := cmp.Diff(want, families); diff != "" || reason == "" || !fragile {
			t.Errorf("%s (-want +got): %v %q\n%s", k, fragile, reason, diff)
		}
	}
	for _, k := range []strategy.Knob{strategy.MicroBatchSize, strategy.Precision} {
		if _, _, fragile := hf.Families(k); fragile {
			t.Errorf("a checkpoint depends on %s", k)
		}
	}
}

// TestProof: lines of the framework show which values it uses.
func TestProof(t *testing.T) {
	hf := catalogued(t, "hf-trainer")
	prove := hf.Prover(recipes.Topology{})
	for line, want := range map[string]strategy.ObservedSetting{
		"  Instantaneous batch size per device = 4":                 {Knob: strategy.MicroBatchSize, Value: "4"},
		"[INFO|trainer.py:1]   Gradient Accumulation steps = 1,024": {Knob: strategy.GradientAccumulationSteps, Value: "1024"},
		"Gradient Accumulation steps: 4":                            {},
	} {
		got, ok := prove(line)
		if want.Knob != "" {
			want.Text = line
		}
		if diff := cmp.Diff(want, got); diff != "" || ok != (want.Knob != "") {
			t.Errorf("%s: %v\n%s", line, ok, diff)
		}
	}
	cmd := recipes.Command{Argv: []string{"x.py", "--output_dir", "out"}}
	if diff := cmp.Diff([]string{"out/trainer_state.json", "out/checkpoint-*/trainer_state.json"}, hf.ProofFiles(cmd)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	want := []strategy.ObservedSetting{{Knob: strategy.MicroBatchSize, Value: "8", Text: "train_batch_size: 8"}}
	if diff := cmp.Diff(want, hf.ProofFile(cmd, "out/trainer_state.json", []byte(`{"train_batch_size": 8}`))); diff != "" {
		t.Errorf("file (-want +got):\n%s", diff)
	}
	own := recipes.Recipe{Recipe: format.Recipe{Knobs: map[strategy.Knob]recipes.Knob{strategy.MicroBatchSize: {}}}}
	if proof, ok := hf.With(own).Prover(recipes.Topology{})("  Instantaneous batch size per device = 4"); ok {
		t.Errorf("a knob of the user's own is proved by the framework's words: %+v", proof)
	}
}

// TestProofCountsRanksAsThePlanDoes: Ultralytics' batch is that of all ranks, and a plan's that
// of one.
func TestProofCountsRanksAsThePlanDoes(t *testing.T) {
	const line = "engine/trainer: agnostic_nms=False, amp=True, batch=16, bgr=0.0"
	for ranks, want := range map[int]strategy.Value{1: "16", 2: "8"} {
		prove := catalogued(t, "ultralytics").Prover(recipes.Topology{Ranks: ranks, DataParallel: ranks})
		if got, ok := prove(line); !ok || got.Value != want {
			t.Errorf("on %d ranks: %+v, %v, want %s", ranks, got, ok, want)
		}
	}
	nanoGPT := catalogued(t, "nanogpt").Prover(recipes.Topology{Ranks: 2, DataParallel: 2})
	if got, ok := nanoGPT("Overriding: gradient_accumulation_steps = 32"); !ok || got.Value != "32" {
		t.Errorf("nanoGPT's accumulation: %+v, %v, want 32, which is the plan's", got, ok)
	}
}

func TestProverReadsFreshStartsAndNothingToDo(t *testing.T) {
	prove := catalogued(t, "open-clip").Prover(recipes.Topology{})
	for line, want := range map[string]strategy.ObservedSetting{
		"No latest resume checkpoint found in logs/x.": {Fresh: true},
		"Error. Experiment already exists. Use --name": {Nothing: true},
	} {
		want.Text = line
		if got, ok := prove(line); !ok || got != want {
			t.Errorf("%s: %+v, %v", line, got, ok)
		}
	}
	if (recipes.Recipe{}).Prover(recipes.Topology{}) != nil {
		t.Error("a recipe without proofs looks at every line")
	}
}

// nanoGPT evaluates with the training's micro batch: a smaller one helps there.
func TestEvaluationFollowsTheMicroBatch(t *testing.T) {
	for name, want := range map[string]strategy.Knob{"nanogpt": strategy.MicroBatchSize, "nanogpt-ranks": strategy.MicroBatchSize, "detectron2": ""} {
		knob := catalogued(t, name).Knobs[strategy.EvalBatchSize]
		if knob.Absent == "" || knob.Follows != want {
			t.Errorf("%s: the evaluation's batch follows %q, want %q", name, knob.Follows, want)
		}
	}
}
