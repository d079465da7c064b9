package script

import (
	"bytes"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// Decide reaches a decision for any values that the reader finds.
func TestDecideAcceptsAnyValues(t *testing.T) {
	whole := told(t, map[string]string{"train.py": head + loop})
	text, err := json.Marshal(map[string]any{"settings": whole.Settings})
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(7, 11))
	for range 3000 {
		var tree map[string]any
		if err := json.Unmarshal(text, &tree); err != nil {
			t.Fatal(err)
		}
		for _, kind := range []string{"loaders", "gates", "conditions", "steps", "losses", "rates", "schedules", "bounds", "asserts", "checkpoints", "unlike", "saves", "loads", "made", "split", "backwards", "trained"} {
			var some []any
			for range random.IntN(3) {
				some = append(some, anyFact(random, len(whole.Settings)))
			}
			tree[kind] = some
		}
		facts, err := json.Marshal(map[string]any{"facts": tree})
		if err != nil {
			t.Fatal(err)
		}
		r, err := Read(facts)
		if err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() {
				if bug := recover(); bug != nil {
					t.Fatalf("%v: %s", bug, facts)
				}
			}()
			s := Decide(*r.Facts, "train.py", []string{"train.py"}, func(string) []byte { return nil })
			s.Recipe(func(format.Recipe) string { return "" })
			s.Evidence()
			s.Warnings()
			s.Loss()
			s.Unequal(true)
			s.Unequal(false)
			s.LossDividedBy([]string{"--accum"})
			s.LibraryLoss()
			for _, found := range s.Found {
				found.Name()
				found.Entry()
			}
		}()
	}
}

// anyFact is a fact with random fields of all kinds of facts.
func anyFact(random *rand.Rand, settings int) map[string]any {
	pick := func(words ...string) string { return words[random.IntN(len(words))] }
	fact := map[string]any{
		"file": pick("train.py", "net.py"), "line": random.IntN(9), "text": pick("optimizer.step", "x"), "id": random.IntN(3), "op": pick("/", "*"), "counter": pick("i", "step"),
		"kind": pick("DataLoader", "if", "range", "framework", "batch", "batches", "length", "norm", "models", "pairs", "mean", "sum", "masked", "state", "data", "handed"),
		"call": pick("Accelerator", "Trainer", "torch.load"),
		"root": pick("backward", "engine", "training_step", "compute_loss", "forward"),
		"role": pick("", "train", "eval"), "target": pick("train_loader", "val_loader", ""), "function": pick("main ", "validate "), "counters": []string{"i"}, "covers": []int{0, 1},
		"keys": []string{"optimizer", "model"}, "accumulates": random.IntN(2) == 0,
	}
	for _, name := range []string{"value", "path", "batch", "workers"} {
		fact[name] = anyValue(random, settings, 0)
	}
	fact["by"] = []any{anyValue(random, settings, 0)}
	if random.IntN(3) == 0 {
		names := slices.Sorted(maps.Keys(fact))
		delete(fact, names[random.IntN(len(names))])
	}
	return fact
}

func anyValue(random *rand.Rand, settings, depth int) map[string]any {
	inner := func() map[string]any { return anyValue(random, settings, depth+1) }
	most := 8
	if depth > 3 {
		most = 4
	}
	switch random.IntN(most) {
	case 0:
		return map[string]any{"set": random.IntN(settings)}
	case 1:
		return map[string]any{"const": []any{nil, 1, 2.5, "x", true}[random.IntN(5)]}
	case 2:
		return map[string]any{"name": []string{"absent", "n_gpus", "?", "opt.total_batch_size"}[random.IntN(4)]}
	case 3:
		return map[string]any{"hydra": []string{"train", "batch_size"}}
	case 4:
		return map[string]any{"file": inner(), "path": []string{"batch_size"}[:random.IntN(2)]}
	case 5:
		return map[string]any{"any": []any{inner(), inner()}}
	case 6:
		return map[string]any{"op": []string{"int", "max", "round", "not", "-", "text", "len", "join"}[random.IntN(8)], "of": []any{inner()}}
	}
	return map[string]any{"op": []string{"/", "//", "*", "%", "+", "compare", "and"}[random.IntN(7)], "of": []any{inner(), inner()}}
}

// TestSettingsAreReadBeforeTheLoss: if the loss cannot be read, the settings are known, and the
// micro batch is kept.
func TestSettingsAreReadBeforeTheLoss(t *testing.T) {
	input, err := SourceRequest{Sources: []format.Source{{Path: "train.py", Text: []byte(head + loop)}}, Deep: true, Seconds: 600}.Input()
	if err != nil {
		t.Fatal(err)
	}
	for fault, why := range map[string]string{"Late": "the sources take longer than 600 s to read", "RecursionError('too deep')": "RecursionError: too deep"} {
		program := strings.Replace(SourceRequest{Deep: true}.Program(), "    def trained(self):\n", "    def trained(self):\n        raise "+fault+"\n", 1)
		file := filepath.Join(t.TempDir(), "reader.py")
		if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
			t.Fatal(err)
		}
		reader := exec.Command(testenv.Python(t), "-I", "-S", file)
		reader.Stdin = bytes.NewReader(input)
		printed, err := reader.Output()
		if err != nil {
			t.Fatal(err)
		}
		r, err := Read(printed)
		if err != nil || r.Facts == nil {
			t.Fatal(r.Unknown, err)
		}
		s := Decide(*r.Facts, "train.py", []string{"train.py"}, func(string) []byte { return nil })
		if got := s.summary(strategy.MicroBatchSize); !strings.HasPrefix(got, "--batch-size ! ") || !strings.Contains(got, why) {
			t.Error(got)
		}
		if loss := s.Loss(); loss.Class != strategy.Average {
			t.Errorf("%+v", loss)
		}
	}
}
