package recipes_test

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// TestAppliedIsRead: for any command line, the applied plan is read again, and the plan that the
// command already has changes nothing.
func TestAppliedIsRead(t *testing.T) {
	hf := catalogued(t, "hf-trainer")
	words := []string{
		"--per_device_train_batch_size 8", "--per-device-train-batch-size=2", "--gradient_accumulation_steps 4", "--gradient_acc=1",
		"--bf16", "--bf16 False", "--fp16 no", "--gradient_checkpointing", "--gradient_checkpointing 0", "--optim adamw_torch_fused",
		"--optim=lion_32bit", "--dataloader_num_workers 4", "--no_dataloader_pin_memory", "--dataloader_pin_memory True",
		"--attn_implementation eager", "--block_size 512", "--learning_rate -1", "data.json more", "--output_dir out",
	}
	rapid.Check(t, func(t *rapid.T) {
		line := append([]string{"x.py", "--seed 1"}, rapid.SliceOfN(rapid.SampledFrom(words), 0, 8).Draw(t, "words")...)
		cmd := recipes.Command{Argv: strings.Fields(strings.Join(line, " ")), Env: map[string]string{}, Files: map[string][]byte{}}
		at := recipes.Topology{Ranks: rapid.IntRange(1, 8).Draw(t, "ranks")}
		plan, ranges, err := hf.Read(cmd, at)
		testenv.Check(t, err)
		same, err := hf.Apply(cmd, plan, at, attempt)
		if err != nil || !slices.Equal(same.Argv, cmd.Argv) || same.Diff != "" {
			t.Fatalf("the command's own plan changes it: %v\n%s", err, same.Diff)
		}
		next := plan.With(drawPlan(t, plan, ranges))
		change, err := hf.Apply(cmd, next, at, attempt)
		testenv.Check(t, err)
		got, _, err := hf.Read(after(cmd, change), at)
		if err != nil {
			t.Fatalf("%v\n%s", err, change.Diff)
		}
		for k, v := range next {
			if got[k] != v {
				t.Fatalf("%s reads as %s, want %s\n%s", k, got[k], v, change.Diff)
			}
		}
	})
}

// drawPlan draws a value in its range for some of the knobs.
func drawPlan(t *rapid.T, plan strategy.Plan, ranges map[strategy.Knob]strategy.Range) strategy.Plan {
	next := strategy.Plan{}
	for _, k := range strategy.Knobs {
		r := ranges[k]
		if r.Absent != "" || !rapid.Bool().Draw(t, "change "+string(k)) {
			continue
		}
		switch {
		case r.Values != nil:
			next[k] = rapid.SampledFrom(r.Values).Draw(t, string(k))
		case k.Whole():
			next[k] = strategy.Number(rapid.IntRange(r.Min, 64).Draw(t, string(k)))
		}
	}
	if next[strategy.OffloadOptimizer] != "" || next[strategy.OffloadParam] != "" {
		next[strategy.Sharding] = "zero3" // can offload everything
	}
	return next
}

// TestDeepSpeedTriple: for any of the three numbers in a configuration, DeepSpeed accepts the
// changed one and derives the plan's values.
func TestDeepSpeedTriple(t *testing.T) {
	ds := catalogued(t, "deepspeed")
	rapid.Check(t, func(t *rapid.T) {
		ranks := rapid.IntRange(1, 8).Draw(t, "ranks")
		micro, accum := rapid.IntRange(1, 32).Draw(t, "micro"), rapid.IntRange(1, 8).Draw(t, "accumulation")
		keys := map[string]int{}
		switch rapid.IntRange(0, 5).Draw(t, "which are given") {
		case 0:
			keys["train_batch_size"], keys["train_micro_batch_size_per_gpu"] = micro*accum*ranks, micro
		case 1:
			keys["train_batch_size"], keys["gradient_accumulation_steps"] = micro*accum*ranks, accum
		case 2:
			keys["train_micro_batch_size_per_gpu"], keys["gradient_accumulation_steps"] = micro, accum
		case 3:
			keys["train_batch_size"], keys["train_micro_batch_size_per_gpu"], keys["gradient_accumulation_steps"] = micro*accum*ranks, micro, accum
		case 4:
			keys["train_batch_size"], accum = micro*ranks, 1
		case 5:
			keys["train_micro_batch_size_per_gpu"], accum = micro, 1
		}
		text, _ := json.Marshal(keys)
		cmd := recipes.Command{Argv: []string{"x.py", "--deepspeed_config", "ds.json"}, Files: map[string][]byte{"ds.json": text}}
		at := recipes.Topology{Ranks: 2 * ranks, DataParallel: ranks}
		plan, _, err := ds.Read(cmd, at)
		if err != nil || plan[strategy.MicroBatchSize] != strategy.Number(micro) || plan[strategy.GradientAccumulationSteps] != strategy.Number(accum) {
			t.Fatalf("%s on %d ranks reads as %v, %v", text, ranks, plan, err)
		}
		nextMicro, nextAccum := rapid.IntRange(1, 32).Draw(t, "next micro"), rapid.IntRange(1, 8).Draw(t, "next accumulation")
		change, err := ds.Apply(cmd, plan.With(strategy.Plan{
			strategy.MicroBatchSize: strategy.Number(nextMicro), strategy.GradientAccumulationSteps: strategy.Number(nextAccum),
		}), at, attempt)
		testenv.Check(t, err)
		next := text
		if changed, ok := change.Files[path.Join("config", "ds.json")]; ok {
			next = changed
		}
		if got := deepSpeedDerives(next, ranks); got != fmt.Sprint(nextMicro, nextAccum) {
			t.Fatalf("DeepSpeed makes %s of %s, want %d %d", got, next, nextMicro, nextAccum)
		}
	})
}

// deepSpeedDerives computes the results of DeepSpeedConfig._set_batch_related_parameters and
// _batch_assertion.
func deepSpeedDerives(text []byte, ranks int) string {
	keys := map[string]int{}
	if err := json.Unmarshal(text, &keys); err != nil {
		return err.Error()
	}
	train, micro, accum := keys["train_batch_size"], keys["train_micro_batch_size_per_gpu"], keys["gradient_accumulation_steps"]
	switch {
	case train > 0 && micro > 0 && accum > 0:
	case train > 0 && micro > 0:
		accum = train / micro / ranks
	case train > 0 && accum > 0:
		micro = train / ranks / accum
	case micro > 0 && accum > 0:
		train = micro * accum * ranks
	case train > 0:
		accum, micro = 1, train/ranks
	case micro > 0:
		train, accum = micro*ranks, 1
	}
	if micro < 1 || accum < 1 || train != micro*accum*ranks {
		return fmt.Sprintf("an assertion: %d != %d × %d × %d", train, micro, accum, ranks)
	}
	return fmt.Sprint(micro, accum)
}
