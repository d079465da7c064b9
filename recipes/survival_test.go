package recipes_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/recipes"
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

func TestObserverReadsFreshStartsAndNothingToDo(t *testing.T) {
	observe := catalogued(t, "open-clip").Observer()
	for line, want := range map[string]strategy.ObservedSetting{
		"No latest resume checkpoint found in logs/x.": {Fresh: true},
		"Error. Experiment already exists. Use --name": {Nothing: true},
	} {
		want.Text = line
		if got, ok := observe(line); !ok || got != want {
			t.Errorf("%s: %+v, %v", line, got, ok)
		}
	}
	if (recipes.Recipe{}).Observer() != nil {
		t.Error("a recipe without such lines looks at every line")
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
