package recipes_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// TestBreaks: a checkpoint survives a change inside a family, and no other.
func TestBreaks(t *testing.T) {
	hf := catalogued(t, "hf-trainer")
	plan := func(words string) strategy.Plan {
		p := strategy.Plan{}
		for pair := range strings.FieldsSeq(words) {
			k, v, _ := strings.Cut(pair, "=")
			p[strategy.Knob(k)] = strategy.Value(v)
		}
		return p
	}
	for _, test := range []struct{ from, to, want string }{
		{"sharding=zero1 micro_batch_size=8", "sharding=zero2 micro_batch_size=4", ""},
		{"sharding=none", "sharding=zero2", "sharding none cannot be resumed with zero2"},
		{"sharding=zero2", "sharding=zero3", "sharding zero2 cannot be resumed with zero3"},
		{"sharding=zero3 offload_param=none", "sharding=zero3 offload_param=cpu", ""},
		{"offload_param=cpu", "offload_param=nvme", "parameter offload cpu cannot be resumed with nvme"},
		{"optimizer=adamw", "optimizer=adamw-8bit", "optimizer adamw cannot be resumed with adamw-8bit"},
		{"optimizer=adamw", "optimizer=adamw", ""},
		{"precision=fp32", "precision=bf16", ""},
		{"", "sharding=zero3", ""}, // what is not known cannot be said to break
	} {
		got := hf.Breaks(plan(test.from), plan(test.to))
		if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s → %s: %q, want %q", test.from, test.to, got, test.want)
		}
	}
	families, reason, fragile := hf.Families(strategy.Sharding)
	if diff := cmp.Diff([][]strategy.Value{{"none"}, {"zero1", "zero2"}, {"zero3"}}, families); diff != "" || reason == "" || !fragile {
		t.Errorf("families (-want +got): %v %q\n%s", fragile, reason, diff)
	}
	if _, _, fragile := hf.Families(strategy.MicroBatchSize); fragile {
		t.Error("a checkpoint depends on the micro batch")
	}
}

// TestProof: the framework's own words say what it uses.
func TestProof(t *testing.T) {
	hf := catalogued(t, "hf-trainer")
	prove := hf.Prover()
	for line, want := range map[string]strategy.Proof{
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
	want := []strategy.Proof{{Knob: strategy.MicroBatchSize, Value: "8", Text: "train_batch_size: 8"}}
	if diff := cmp.Diff(want, hf.ProofFile(cmd, "out/trainer_state.json", []byte(`{"train_batch_size": 8}`))); diff != "" {
		t.Errorf("file (-want +got):\n%s", diff)
	}
	own := recipes.Recipe{Recipe: format.Recipe{Knobs: map[strategy.Knob]recipes.Knob{strategy.MicroBatchSize: {}}}}
	if proof, ok := hf.With(own).Prover()("  Instantaneous batch size per device = 4"); ok {
		t.Errorf("a knob of the user's own is proved by the framework's words: %+v", proof)
	}
}

// TestProverHearsWhatIsNoSetting: that a job starts anew, or does nothing.
func TestProverHearsWhatIsNoSetting(t *testing.T) {
	prove := catalogued(t, "open-clip").Prover()
	for line, want := range map[string]strategy.Proof{
		"No latest resume checkpoint found in logs/x.": {Fresh: true},
		"Error. Experiment already exists. Use --name": {Nothing: true},
	} {
		want.Text = line
		if got, ok := prove(line); !ok || got != want {
			t.Errorf("%s: %+v, %v", line, got, ok)
		}
	}
	if (recipes.Recipe{}).Prover() != nil {
		t.Error("a recipe without proofs looks at every line")
	}
}
