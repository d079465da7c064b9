package job

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/strategy/memory"
)

// remembered is a job of files, with its own configuration file and module.
var remembered = map[string]string{
	"train.py":       trainer + "import model\n",
	"model.py":       "from parts import block\n",
	"parts/block.py": "WIDTH = 64\n",
	"ds.json":        `{"zero_optimization": {"stage": 1}, "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 1, "bf16": {"enabled": false}}`,
}

// codeOf is the digest of the job's code, with some files and words instead.
func codeOf(t *testing.T, change map[string]string, words ...string) string {
	t.Helper()
	files := map[string]string{}
	for name, text := range remembered {
		files[name] = text
	}
	for name, text := range change {
		files[name] = text
	}
	dir, _ := folder(t, files)
	p, err := prepared(t, dir, machine(dir), slices.Concat([]string{"train.py", "--output_dir", "out", "--deepspeed", "ds.json"}, words)...)
	if err != nil {
		t.Fatal(err)
	}
	if p.RecipeName() != "hf-trainer" {
		t.Fatalf("recipe %s", p.RecipeName())
	}
	return p.codeDigest()
}

// TestTheDigestOfTheCode: what the job needs depends on it, but for the settings that
// gpurun may change.
func TestTheDigestOfTheCode(t *testing.T) {
	base := []string{"--per_device_train_batch_size", "8", "--gradient_accumulation_steps", "1"}
	was := codeOf(t, nil, base...)
	halved := strings.NewReplacer(`gpu": 8`, `gpu": 4`, `steps": 1`, `steps": 2`).Replace(remembered["ds.json"])
	for name, c := range map[string]struct {
		change map[string]string
		words  []string
		same   bool
	}{
		"nothing":                   {nil, base, true},
		"a smaller batch":           {map[string]string{"ds.json": halved}, []string{"--per_device_train_batch_size", "4", "--gradient_accumulation_steps", "2"}, true},
		"another argument":          {nil, append(slices.Clone(base), "--hidden", "128"), false},
		"the script":                {map[string]string{"train.py": remembered["train.py"] + "LAYERS = 7\n"}, base, false},
		"a module":                  {map[string]string{"model.py": remembered["model.py"] + "LAYERS = 7\n"}, base, false},
		"a module's module":         {map[string]string{"parts/block.py": "WIDTH = 128\n"}, base, false},
		"a file that nobody reads":  {map[string]string{"notes.txt": "LAYERS = 7\n"}, base, true},
		"the file, beside settings": {map[string]string{"ds.json": strings.Replace(remembered["ds.json"], "{", `{"steps_per_print": 5, `, 1)}, base, false},
	} {
		if same := codeOf(t, c.change, c.words...) == was; same != c.same {
			t.Errorf("%s: the same %v, want %v", name, same, c.same)
		}
	}
}

// A seed, a learning rate, the name of a run and a place for output change no shape, count or dtype. Other words do,
// and so may these if they have an unusual value.
func TestNeutralArgumentsMakeNoOtherJob(t *testing.T) {
	for _, test := range []struct {
		a, b string
		same bool
	}{
		{"t.py --seed 1", "t.py --seed 2", true},
		{"t.py --seed=1 --x", "t.py --seed=-2 --x", true},
		{"t.py --learning-rate 1e-3", "t.py --learning-rate 5e-5", true},
		{"t.py train.seed=1 optim.lr=0.1", "t.py train.seed=2 optim.lr=0.2", true},
		{"t.py ++run_name=a", "t.py ++run_name=b", true},
		{"t.py --output_dir out/1 --bs 8", "t.py --output_dir out/2 --bs 8", true},
		{"t.py --run-name a --wandb_project=p", "t.py --run-name b --wandb_project=q", true},
		{"t.py --bs 8", "t.py --bs 4", false},
		{"t.py --seed 1", "t.py --seed large.yaml", false},
		{"t.py --seed 1 --bs 8", "t.py --seed --bs 8", false},
		{"t.py --run_name --hidden 4", "t.py --run_name --hidden 8", false},
		{"t.py --model_name a", "t.py --model_name b", false},
		{"t.py experiment=small", "t.py experiment=large", false},
		{"t.py --seed 1", "t.py --random-seed 1", false},
		{"seed 1", "seed 2", false},
		{"t.py seed 1", "t.py seed 2", false},
		{"seed=1 t.py", "seed=2 t.py", false},
		{"t.py --epochs 1", "t.py --epochs 2", false},
	} {
		a, b := withoutNeutral(strings.Fields(test.a)), withoutNeutral(strings.Fields(test.b))
		if slices.Equal(a, b) != test.same {
			t.Errorf("%s and %s: %q, %q", test.a, test.b, a, b)
		}
	}
}

func TestDigestHasScriptsOfAShell(t *testing.T) {
	digest := func(script string) string {
		dir, _ := folder(t, map[string]string{"train.sh": script})
		p, err := prepared(t, dir, machine(dir), "--no-python", "sh", "train.sh", "--layers", "6")
		if err != nil {
			t.Fatal(err)
		}
		return p.codeDigest()
	}
	if a, b, c := digest("echo 1"), digest("echo 1"), digest("echo 2"); a != b || a == c {
		t.Errorf("%s, %s, %s", a, b, c)
	}
}

// nowhere gives variables that name no folder.
func nowhere(string) string { return "" }

// Where only the folder that users share cannot be written, the message names it: the user's own memory has the plan.
func TestErrorOfSharingNamesTheSharedFolder(t *testing.T) {
	dir, _ := folder(t, remembered)
	p, err := prepared(t, dir, machine(dir), "train.py", "--output_dir", "out", "--per_device_train_batch_size", "8")
	if err != nil {
		t.Fatal(err)
	}
	p.Job.Fits.Shared = filepath.Join(dir, "missing")
	state := t.TempDir()
	variables := func(name string) string { return map[string]string{"XDG_STATE_HOME": state}[name] }
	j, inv := p.StrategyJob(), strategy.Inventory{At: time.Now(), Device: p.Device(nil)}
	failed := strategy.Attempt{Plan: j.Written, Ended: inv.At, Diagnosis: strategy.Diagnosis{Cause: cause.HostOOM, Fatal: true}}
	trained := strategy.Attempt{N: 1, Plan: j.Written.With(strategy.Plan{strategy.MicroBatchSize: "4", strategy.GradientAccumulationSteps: "2"}), Ended: inv.At}
	m := p.Memory(variables, false)
	err = m.Keep(t.Context(), j, []strategy.Attempt{failed, trained}, strategy.Decision{Outcome: strategy.Trained}, inv)
	want := "cannot share the plans of this job: stat " + p.Job.Fits.Shared + ": no such file or directory"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if own, err := m.store.Load(); len(own) != 1 || err != nil {
		t.Errorf("the user's own memory: %v, %v", own, err)
	}
}

// TestAJobIsRemembered goes through two nights, with all that may be in between.
func TestAJobIsRemembered(t *testing.T) {
	dir, _ := folder(t, remembered)
	// What PyTorch says of itself, beside an interpreter that finds it there.
	put(t, filepath.Join(dir, "site", "torch", "version.py"), "__all__ = ['__version__']\n__version__ = '2.11.0+cu130'\n")
	put(t, filepath.Join(dir, "python3"), parses+"echo '{\"version\": \"3.12.0\", \"path\": [\""+dir+"/site\"], \"packages\": {\"transformers\": \"4.57.0\"}}'\n")
	p, err := prepared(t, dir, machine(dir), "train.py", "--output_dir", "out", "--per_device_train_batch_size", "8")
	if err != nil {
		t.Fatal(err)
	}
	if got := p.torchMinor(t.Context()); got != "2.11" {
		t.Errorf("torch %q", got)
	}
	state := t.TempDir()
	variables := func(name string) string { return map[string]string{"XDG_STATE_HOME": state}[name] }
	j, inv := p.StrategyJob(), strategy.Inventory{At: time.Now(), Device: p.Device(nil)}
	policy := strategy.Policy{Mode: strategy.Ladder, Numerics: strategy.MixedPrecision}
	smaller := j.Written.With(strategy.Plan{strategy.MicroBatchSize: "4", strategy.GradientAccumulationSteps: "2"})

	first := p.Memory(variables, false)
	none := func() strategy.Inventory {
		t.Error("the inventory was asked for, and nothing is remembered")
		return inv
	}
	if with, words := first.Recall(t.Context(), policy, j, none); with.Recalled != nil || len(words) != 0 {
		t.Errorf("the first night: %+v, %v", with.Recalled, words)
	}
	if err := first.Keep(t.Context(), j, []strategy.Attempt{{Plan: j.Written, Ended: inv.At}}, strategy.Decision{Outcome: strategy.Trained}, inv); err != nil {
		t.Fatal(err)
	}
	if made, _ := os.ReadDir(state); len(made) > 0 {
		t.Errorf("of a job that trained as written, %v was made", made)
	}
	failed := strategy.Attempt{Plan: j.Written, Ended: inv.At, Diagnosis: strategy.Diagnosis{Cause: cause.HostOOM, Fatal: true}}
	trained := strategy.Attempt{N: 1, Plan: smaller, Ended: inv.At, Measured: []memory.Measurement{{Peak: 5, Model: &memory.TrainedModel{Class: "GPT", Parameters: 9}}}}
	err = errors.Join(first.Keep(t.Context(), j, []strategy.Attempt{failed}, strategy.Decision{Relaunch: true}, inv),
		first.Keep(t.Context(), j, []strategy.Attempt{failed, trained}, strategy.Decision{Outcome: strategy.Trained}, inv))
	if err != nil {
		t.Fatal(err)
	}
	// People are told that the plan is remembered, and only of that plan.
	for at, want := range map[*strategy.Plan]bool{&smaller: true, &j.Written: false} {
		if words, err := p.Propose(*at, nil, dir, 1, variables); err != nil || words.Remembered != want {
			t.Errorf("%s is said to be remembered: %v, %v", *at, words.Remembered, err)
		}
	}
	if words, _ := p.Propose(smaller, nil, dir, 1, nowhere); words.Remembered {
		t.Error("nothing is remembered nowhere")
	}

	now := func() strategy.Inventory { return inv }
	with, words := p.Memory(variables, false).Recall(t.Context(), policy, j, now)
	if with.Recalled == nil || with.Recalled.Plan[strategy.MicroBatchSize] != "4" || with.Recalled.Fit == "" || len(with.Remembered) != 1 || len(words) != 0 {
		t.Fatalf("the second night: %+v, %v", with, words)
	}
	if with, _ := p.Memory(variables, true).Recall(t.Context(), policy, j, now); with.Recalled != nil || len(with.Remembered) != 0 {
		t.Errorf("fresh: %+v", with)
	}
	if with, words := p.Memory(func(string) string { return "" }, false).Recall(t.Context(), policy, j, now); with.Recalled != nil || len(words) != 1 {
		t.Errorf("nowhere: %+v, %v", with.Recalled, words)
	}
	// The plan failed, and the job as written trained: it was the plan.
	bug := strategy.Attempt{Plan: smaller, Ended: inv.At, Diagnosis: strategy.Diagnosis{Cause: cause.UserError, Fatal: true, Error: "ValueError: 4"}}
	again := strategy.Attempt{N: 1, Plan: j.Written, Ended: inv.At, Diagnosis: failed.Diagnosis}
	if err := p.Memory(variables, false).Keep(t.Context(), with, []strategy.Attempt{bug, again}, strategy.Decision{Relaunch: true}, inv); err != nil {
		t.Fatal(err)
	}
	if with, _ := p.Memory(variables, false).Recall(t.Context(), policy, j, now); with.Recalled != nil {
		t.Errorf("a plan that fails by itself is started again: %+v", with.Recalled)
	}
	// It trained once more, and then failed so late that nothing else had a turn.
	if err := p.Memory(variables, false).Keep(t.Context(), j, []strategy.Attempt{failed, trained}, strategy.Decision{Outcome: strategy.Trained}, inv); err != nil {
		t.Fatal(err)
	}
	if with, _ = p.Memory(variables, false).Recall(t.Context(), policy, j, now); with.Recalled == nil {
		t.Fatal("what trained again is not started with")
	}
	if err := p.Memory(variables, false).Keep(t.Context(), with, []strategy.Attempt{bug}, strategy.Decision{Outcome: strategy.Failed}, inv); err != nil {
		t.Fatal(err)
	}
	if with, _ := p.Memory(variables, false).Recall(t.Context(), policy, j, now); with.Recalled != nil {
		t.Errorf("it is started with every night, and fails: %+v", with.Recalled)
	}
}

// Of a job that gets words for its run, those do not count.
func TestWordsOfTheRunAreNotRemembered(t *testing.T) {
	p := &Prepared{Resolved: Resolved{Inspected: Inspected{Job: Job{Workdir: "/job", Argv: []string{"train.py"}, Kind: Script}}}}
	pinned := *p
	pinned.Job.Argv, pinned.unpinned = []string{"train.py", "--experiment", "20251121-030000-ab12"}, p
	none := func(string) string { return "" }
	if m := pinned.Memory(none, false); m.job != p {
		t.Error("the words of the run count")
	}
}

func TestTheDeviceWithTheLeastRoom(t *testing.T) {
	dir, _ := folder(t, map[string]string{"train.py": trainer})
	p, err := prepared(t, dir, machine(dir), "train.py", "--output_dir", "out")
	if err != nil {
		t.Fatal(err)
	}
	d := p.Device([]ranks.Device{{Name: "a", Total: 80, Used: 1}, {Name: "b", Total: 80, Used: 30}, {Name: "c", Total: 94}})
	if d.Name != "b" || d.Total != 80 || d.Others != 30 {
		t.Errorf("%+v", d)
	}
	if d := p.Device(nil); d.Name != "cpu" || !d.CPU || d.Total != 0 {
		t.Errorf("%+v", d)
	}
	if _, err := os.Stat(filepath.Join(dir, ".gpurun")); err == nil {
		t.Error("a folder was made")
	}
}
