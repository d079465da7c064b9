package job

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/launcher/cluster"
	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// A plan is proposed in the place where the user wrote the job: with its launcher and
// the flags of gpurun, but for the run directory, which is another one next time.
func TestAProposalIsWhereTheJobWasWritten(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("SEED", "3")
	t.Setenv("MORE", "--a b")
	for _, name := range []string{"train.py", "train.sh"} {
		testenv.Check(t, os.WriteFile(filepath.Join(dir, name), []byte("import torch\n"), 0o755))
	}
	const knobs = "\n[knobs]\nmicro_batch_size = { arg = \"--bs\" }\ngradient_accumulation_steps = { env = \"ACCUM\", default = 1 }\n"
	for name, c := range map[string]struct {
		job  string
		args []string
		want strategy.Proposal
	}{
		"script": {
			job:  "script = \"train.py\"\nargs = [\"--x\", \"1\", \"--bs\", \"8\"]\n[launch]\nnproc_per_node = 1",
			want: strategy.Proposal{File: "train.toml", Key: "args", Words: []string{"--x", "1", "--bs", "4"}},
		},
		"script without arguments, with variables": {
			job:  "script = \"train.py\"\nargs = [\"--bs=8\"]\nenv = { A = \"1\" }\n[launch]\nnproc_per_node = 1",
			want: strategy.Proposal{File: "train.toml", Key: "args", Words: []string{"--bs=4"}, HasEnv: true},
		},
		"program": {
			job:  "program = [\"./train.sh\", \"--bs\", \"8\"]\n[launch]\nnproc_per_node = 1",
			want: strategy.Proposal{File: "train.toml", Key: "program", Words: []string{"./train.sh", "--bs", "4"}},
		},
		"program, changed in args": {
			job:  "program = [\"./train.sh\", \"--x\"]\nargs = [\"--bs\", \"8\"]\n[launch]\nnproc_per_node = 1",
			want: strategy.Proposal{File: "train.toml", Key: "args", Words: []string{"--bs", "4"}},
		},
		"program, changed before args": {
			job:  "program = [\"./train.sh\", \"--bs\", \"8\"]\nargs = [\"--x\"]\n[launch]\nnproc_per_node = 1",
			want: strategy.Proposal{File: "train.toml", Key: "program", Words: []string{"./train.sh", "--bs", "4", "--x"}, NoArgs: true},
		},
		"program with torchrun": {
			job:  "program = [\"torchrun\", \"--nproc-per-node\", \"2\", \"train.py\"]\nargs = [\"--bs\", \"8\"]",
			want: strategy.Proposal{File: "train.toml", Key: "args", Words: []string{"--bs", "4"}},
		},
		"command": {
			job:  "command = \"A=1 torchrun --nproc-per-node 2 train.py --bs 8\"",
			want: strategy.Proposal{File: "train.toml", Key: "command", Words: []string{"torchrun", "--nproc-per-node", "2", "train.py", "--bs", "4"}, Env: map[string]string{"A": "1"}, HasEnv: true},
		},
		"command with variables": {
			job: "command = \"SEED=$SEED torchrun --nproc-per-node 2 train.py --seed $SEED $MORE \\\"$MORE\\\" --bs 8\"",
			want: strategy.Proposal{File: "train.toml", Key: "command", Words: []string{"torchrun", "--nproc-per-node", "2", "train.py", "--seed", "3", "--a", "b", "--a b", "--bs", "4"},
				Sources: map[int]string{5: "$SEED", 6: "$MORE", 7: "", 8: `"$MORE"`}, Env: map[string]string{"SEED": "3"}, EnvSources: map[string]string{"SEED": "SEED=$SEED"}, HasEnv: true},
		},
		"command line": {
			args: []string{"--run-dir", "old", "--nproc-per-node", "2", "--run-dir=older", "--quiet", "train.py", "--bs", "8"},
			want: strategy.Proposal{Words: []string{"gpurun", "--nproc-per-node", "2", "--quiet", "train.py", "--bs", "4"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			args := c.args
			if args == nil {
				args = []string{filepath.Join(dir, "train.toml")}
				testenv.Check(t, os.WriteFile(args[0], []byte("[job]\n"+c.job+knobs), 0o644))
			}
			j, _, err := Open(t.Context(), args, os.Environ(), dir)
			testenv.Check(t, err)
			if c.args != nil { // a command line has no [knobs]
				j.Knobs = map[string]any{"micro_batch_size": map[string]any{"arg": "--bs"}, "gradient_accumulation_steps": map[string]any{"env": "ACCUM", "default": int64(1)}}
			}
			p, err := Prepare(t.Context(), j, Surroundings{Environ: os.Environ()})
			testenv.Check(t, err)
			plan := p.Plan().With(strategy.Plan{strategy.MicroBatchSize: "4", strategy.GradientAccumulationSteps: "2"})
			got, err := p.Propose(plan, nil, dir, 1, nowhere)
			testenv.Check(t, err)
			if c.want.Env == nil {
				c.want.Env = map[string]string{}
			}
			c.want.Env["ACCUM"] = "2"
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// Arguments in the code are proposed in the code's own words, with the line.
func TestProposedCallsAreNamedAsInTheCode(t *testing.T) {
	calls := []strategy.Call{{Name: "lightning.pytorch.Trainer", Keyword: "accumulate_grad_batches", To: 4}, {Name: "lightning.pytorch.Trainer", Keyword: "precision", To: "bf16"}}
	trainer := format.CodeCall{Name: "pl.Trainer", Whole: []string{"lightning.pytorch.Trainer"}, Line: 8}
	other := format.CodeCall{Name: "pl.LightningModule", Whole: []string{"lightning.pytorch.LightningModule"}, Line: 2}
	for want, found := range map[string][]format.CodeCall{
		`pl.Trainer(…, accumulate_grad_batches=4, precision="bf16") (train.py:8)`:     {other, trainer},
		`lightning.pytorch.Trainer(…, accumulate_grad_batches=4, precision="bf16")`:   {other},
		`lightning.pytorch.Trainer(…, accumulate_grad_batches=4, precision="bf16")  `: {trainer, trainer},
	} {
		if got := inPython(calls, format.ScriptCode{{Path: "train.py", Calls: found}}); len(got) != 1 || got[0] != strings.TrimSpace(want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A tracker's variables are set where the framework alone speaks to it, where the interpreter
// has it, and where the user has set none; a job of which nothing is known gets a tag.
func TestTracked(t *testing.T) {
	all := recipes.Recipe{Recipe: format.Recipe{Resume: format.Resume{Env: map[string]string{"WANDB_RUN_ID": "{job}", "WANDB_RESUME": "allow", "TENSORBOARD_LOGGING_DIR": "runs/{job}"}}}}
	installed := map[string]string{"wandb": "0.31.0", "mlflow-skinny": "3.17.2", "tensorboard": "2.21.0"}
	for name, test := range map[string]struct {
		source   string
		packages map[string]string
		env      commandline.Environ
		want     string
	}{
		"all":                     {"import torch", installed, nil, "MLFLOW_RUN_CONTEXT TENSORBOARD_LOGGING_DIR WANDB_RESUME WANDB_RUN_ID"},
		"by its source":           {"import mlflow", nil, nil, "MLFLOW_RUN_CONTEXT"},
		"nothing known":           {"import torch", nil, nil, ""},
		"an image":                {"x = wandb.Image(x)", installed, nil, "MLFLOW_RUN_CONTEXT TENSORBOARD_LOGGING_DIR WANDB_RESUME WANDB_RUN_ID"},
		"a run of its own":        {"wandb.init(project='x')", installed, nil, "MLFLOW_RUN_CONTEXT TENSORBOARD_LOGGING_DIR"},
		"its settings":            {"wandb.config.update(vars(args))", installed, nil, "MLFLOW_RUN_CONTEXT TENSORBOARD_LOGGING_DIR"},
		"by name":                 {"from wandb import init", installed, nil, "MLFLOW_RUN_CONTEXT TENSORBOARD_LOGGING_DIR"},
		"none installed":          {"import torch", map[string]string{"torch": "2.11"}, nil, ""},
		"the user's W&B and tags": {"import torch", installed, commandline.Environ{"WANDB_RUN_ID": "x", "MLFLOW_RUN_CONTEXT": ""}, "TENSORBOARD_LOGGING_DIR"},
	} {
		r := Resolved{Inspected: Inspected{source: []byte(test.source), env: test.env}, recipeChoice: recipeChoice{recipe: all}}
		r.command = recipes.Command{Argv: []string{"x.py"}, Packages: test.packages, Env: test.env}
		p := (&Prepared{Resolved: r}).Tracked("r1")
		if got := strings.Join(slices.Sorted(maps.Keys(p.tracked)), " "); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
		if tags, set := p.tracked[mlflowTags]; set && tags != `{"gpurun.run":"r1"}` {
			t.Errorf("%s: %s", name, tags)
		}
	}
}

// batchKnobs are the arguments of a script for its batch.
var batchKnobs = map[string]any{
	"micro_batch_size": map[string]any{"arg": []any{"--batchSize", "-b"}}, "gradient_accumulation_steps": map[string]any{"arg": "--accum", "default": int64(1)},
	"eval_batch_size": map[string]any{"env": "EVAL", "default": int64(8)},
}

// nextWriter is that of a command line, which has knobs, or of the train.toml that it names.
func nextWriter(t *testing.T, dir string, knobs map[string]any, words ...string) *NextWriter {
	t.Helper()
	t.Chdir(dir)
	j, _, err := Open(t.Context(), words, os.Environ(), dir)
	testenv.Check(t, err)
	if j.Path == "" {
		j.Knobs = knobs
	}
	p, err := Prepare(t.Context(), j, Surroundings{Environ: os.Environ()})
	testenv.Check(t, err)
	return &NextWriter{Prepared: p, Typed: words, Dir: filepath.Join(dir, ".gpurun", "train", "r1"), From: dir, Mask: mask.New(p.Job.Argv, p.Environ()),
		Keep: func(int, string) (string, error) { return filepath.Join(dir, "next.patch"), nil }}
}

// A run of a Slurm job continues when the job is requeued: gpurun resume would train on the login node.
func TestNextStepOfARunOfSlurmRequeuesTheJob(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "train.py"), "import torch\n")
	w := nextWriter(t, dir, nil, "python3", "train.py")
	w.Where.Kind, w.Where.Job = cluster.SlurmBatch, "70_2"
	next, ok := w.Write(strategy.NextStep{Kind: strategy.NextResume, Reason: "continues the run"}, strategy.LogPlace{})
	if !ok || next.Command != "scontrol requeue 70_2" || next.Reason != "continues the run; within a job, so does gpurun resume .gpurun/train/r1" {
		t.Errorf("%+v, %t", next, ok)
	}
}

// TestNextStepsUseTheWordsOfTheJob: each command is the one that was typed, with what the step changes.
func TestNextStepsUseTheWordsOfTheJob(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"train.py": "import torch\n",
		"train.toml": "[job]\nscript = \"train.py\"\nargs = [\"--bs\", \"8\"]   # as on the cluster\n[launch]\nnproc_per_node = 1\n" +
			"[recovery]\nnever = [\"precision\"]\n[knobs]\nmicro_batch_size = { arg = \"--bs\", min = 4 }\ngradient_accumulation_steps = { arg = \"--accum\", default = 1 }\n",
	} {
		testenv.Check(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	typed := []string{"--run-id", "r1", "--numerics=preserve", "python3", "train.py", "-b", "64"}
	file := []string{"train.toml"}
	secret := []string{"python3", "train.py", "--token", "hf_aBcDeFgHiJkLmNoPqRsTuVwXyZ01234567"}
	policy := strategy.NextStep{Kind: strategy.NextPolicy, Setting: strategy.SettingNumerics, Value: "mixed-precision"}
	smaller := strategy.NextStep{Kind: strategy.NextRun, Plan: strategy.Plan{strategy.MicroBatchSize: "16"}}
	again := strategy.NextStep{Kind: strategy.NextRun}
	missing := strategy.NextStep{Kind: strategy.NextRun, Missing: []string{"--data", "-c/--config", "out-dir"}}
	never := strategy.NextStep{Kind: strategy.NextPolicy, Setting: strategy.SettingNever}
	least := strategy.NextStep{Kind: strategy.NextPolicy, Setting: strategy.SettingLeastBatch, Value: "2"}
	for name, test := range map[string]struct {
		typed []string
		step  strategy.NextStep
		want  string // the command, or the changed lines; empty: no words
	}{
		"a policy":                         {typed, policy, "gpurun --numerics mixed-precision python3 train.py -b 64"},
		"a policy, in front of a file":     {file, policy, "gpurun --numerics mixed-precision train.toml"},
		"a policy, and a secret":           {secret, policy, "gpurun resume --fresh --numerics mixed-precision .gpurun/train/r1"},
		"a smaller batch":                  {typed, smaller, "gpurun --numerics=preserve python3 train.py -b 16"},
		"a variable":                       {typed, strategy.NextStep{Kind: strategy.NextRun, Plan: strategy.Plan{strategy.EvalBatchSize: "4"}}, "EVAL=4 gpurun --numerics=preserve python3 train.py -b 64"},
		"a smaller batch, and a secret":    {append(secret, "-b", "64"), smaller, "gpurun resume --fresh .gpurun/train/r1 -- -b 16"},
		"a smaller batch, added":           {secret, smaller, "gpurun resume --fresh .gpurun/train/r1 -- --batchSize 16"},
		"a variable, and a secret":         {secret, strategy.NextStep{Kind: strategy.NextRun, Plan: strategy.Plan{strategy.MicroBatchSize: "16", strategy.EvalBatchSize: "4"}}, "EVAL=4 gpurun resume --fresh .gpurun/train/r1 -- --batchSize 16"},
		"an argument with =, and a secret": {append(secret, "--batchSize=64"), smaller, "gpurun resume --fresh .gpurun/train/r1 -- --batchSize=16"},
		"a smaller batch, in a file":       {file, strategy.NextStep{Kind: strategy.NextRun, Plan: strategy.Plan{strategy.MicroBatchSize: "4"}}, "-args = [\"--bs\", \"8\"]   # as on the cluster\n+args = [\"--bs\", \"4\"]   # as on the cluster"},
		"the batch that the job has":       {typed, strategy.NextStep{Kind: strategy.NextRun, Plan: strategy.Plan{strategy.MicroBatchSize: "64"}}, "gpurun --numerics=preserve python3 train.py -b 64"},
		"again, in a run with a name":      {typed, again, "gpurun --fresh --run-id r1 --numerics=preserve python3 train.py -b 64"},
		"again, and a secret":              {secret, again, "gpurun resume --fresh .gpurun/train/r1"},
		"missing arguments":                {[]string{"python3", "train.py"}, missing, "gpurun python3 train.py --data DATA --config CONFIG OUT_DIR"},
		"missing arguments, of a file":     {file, missing, ""},
		"nothing barred any more":          {[]string{"--never", "shard", "--never=precision", "python3", "train.py"}, never, "gpurun python3 train.py"},
		"nothing barred, in a file":        {file, never, "-never = [\"precision\"]\n+never = []"},
		"a minimum":                        {file, least, "-micro_batch_size = { arg = \"--bs\", min = 4 }\n+micro_batch_size = { arg = \"--bs\", min = 2 }"},
		"a minimum that no file has":       {typed, least, ""},
		"resume":                           {typed, strategy.NextStep{Kind: strategy.NextResume}, "gpurun resume .gpurun/train/r1"},
		"a checkpoint that is not there":   {typed, strategy.NextStep{Kind: strategy.NextResume, Checkpoint: "out/ckpt-1"}, ""},
		"a log of an attempt without one":  {typed, strategy.NextStep{Kind: strategy.NextInspect}, "gpurun explain .gpurun/train/r1"},
		"a log after the flag for memory":  {[]string{"--device-memory", "1GiB", "python3", "train.py"}, policy, "gpurun --numerics mixed-precision --device-memory 1GiB python3 train.py"},
		"a plan that no argument can give": {typed, strategy.NextStep{Kind: strategy.NextRun, Plan: strategy.Plan{strategy.Precision: "bf16"}}, ""},
	} {
		w := nextWriter(t, dir, batchKnobs, test.typed...)
		next, ok := w.Write(test.step, strategy.LogPlace{})
		got := next.Command
		if next.Diff != "" {
			got = changedLines(next.Diff)
			applies(t, dir, next.Diff)
		}
		if got != test.want || ok != (test.want != "") {
			t.Errorf("%s: %q, %t; want %q", name, got, ok, test.want)
		}
	}
}

// TestNextStepsChangeTheFilesOfTheJob: a setting in the job's own configuration file is changed there.
func TestNextStepsChangeTheFilesOfTheJob(t *testing.T) {
	dir := t.TempDir()
	const conf = "train:\n  batch: 64   # per GPU\n  lr: 0.1\n"
	for name, text := range map[string]string{
		"train.py": "import torch\n", "conf/base.yaml": conf, "secret.yaml": strings.Replace(conf, "  lr", "  token: hf_aBcDeFgHiJkLmNoPqRsTuVwXyZ01234567\n  lr", 1),
		"train.toml": "[job]\nscript = \"train.py\"\n[launch]\nnproc_per_node = 1\n[knobs]\nmicro_batch_size = { file = \"conf/base.yaml\", path = \"train.batch\", via = { arg = \"--config\" } }\n",
	} {
		testenv.Check(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		testenv.Check(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	knobs := func(file string) map[string]any {
		return map[string]any{"micro_batch_size": map[string]any{"file": file, "path": "train.batch"}}
	}
	for name, test := range map[string]struct {
		typed []string
		file  string
		want  string // the command; empty: none
	}{
		"a command line": {[]string{"--run-id", "r1", "python3", "train.py", "--config", "conf/base.yaml"}, "conf/base.yaml", "git apply next.patch && gpurun python3 train.py --config conf/base.yaml"},
		"a train.toml":   {[]string{"train.toml"}, "", "git apply next.patch && gpurun train.toml"},
		"a secret":       {[]string{"python3", "train.py", "--config", "secret.yaml"}, "secret.yaml", ""},
	} {
		w := nextWriter(t, dir, knobs(test.file), test.typed...)
		next, ok := w.Write(strategy.NextStep{Kind: strategy.NextRun, Plan: strategy.Plan{strategy.MicroBatchSize: "16"}}, strategy.LogPlace{})
		if ok != (test.want != "") || next.Command != test.want {
			t.Errorf("%s: %t, %q, want %q", name, ok, next.Command, test.want)
		}
		if !ok {
			continue
		}
		if got, want := changedLines(next.Diff), "-  batch: 64   # per GPU\n+  batch: 16   # per GPU"; got != want || next.Kind != strategy.NextPatch {
			t.Errorf("%s: %s %q, want %q", name, next.Kind, got, want)
		}
		applies(t, dir, next.Diff)
	}
}

// changedLines are the lines that a diff removes and adds.
func changedLines(diff string) string {
	var lines []string
	for line := range strings.Lines(diff) {
		if (line[0] == '-' || line[0] == '+') && !strings.HasPrefix(line, "---") && !strings.HasPrefix(line, "+++") {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	return strings.Join(lines, "\n")
}

// applies checks that git would apply a diff in a folder.
func applies(t *testing.T, dir, diff string) {
	t.Helper()
	git := exec.CommandContext(t.Context(), "git", "apply", "--check", "-")
	git.Dir, git.Stdin = dir, strings.NewReader(diff)
	if out, err := git.CombinedOutput(); err != nil {
		t.Errorf("%v: %s\n%s", err, out, diff)
	}
}

// TestInspectShowsTheLinesOfTheFailure: the command prints the line of the log that shows the failure.
func TestInspectShowsTheLinesOfTheFailure(t *testing.T) {
	dir := t.TempDir()
	testenv.Check(t, os.WriteFile(filepath.Join(dir, "train.py"), []byte("import torch\n"), 0o644))
	w := nextWriter(t, dir, nil, "python3", "train.py")
	rank := filepath.Join(w.Dir, "attempt-2", "node-1", "rank3")
	testenv.Check(t, os.MkdirAll(rank, 0o755))
	log := strings.Repeat("a step\n", 100) + "KeyError: 'x'\n" + strings.Repeat("a sweep\n", 100)
	testenv.Check(t, os.WriteFile(filepath.Join(rank, "stdout.log"), []byte(log), 0o644))
	next, ok := w.Write(strategy.NextStep{Kind: strategy.NextInspect}, strategy.LogPlace{Attempt: 2, Rank: 3, Stream: "stdout", Line: 101})
	shell := exec.CommandContext(t.Context(), "sh", "-c", next.Command)
	shell.Dir = dir
	out, err := shell.Output()
	if !ok || err != nil || !strings.Contains(string(out), "KeyError: 'x'") || strings.Count(string(out), "\n") > 30 {
		t.Errorf("%q: %v\n%s", next.Command, err, out)
	}
}

// TestMissingModuleNamesTheInterpreter: most modules that are missing are in another environment.
func TestMissingModuleNamesTheInterpreter(t *testing.T) {
	dir := t.TempDir()
	testenv.Check(t, os.WriteFile(filepath.Join(dir, "train.py"), []byte("import torch\n"), 0o644))
	for by, typed := range map[string][]string{
		"write the python of the environment that has it into the command": {"python3", "train.py"}, "activate the environment that has it, or name its interpreter with --python": {"train.py"},
	} {
		w := nextWriter(t, dir, nil, typed...)
		next, _ := w.Write(strategy.NextStep{Kind: strategy.NextInspect, Module: true}, strategy.LogPlace{})
		if want := "the job ran with " + w.Python() + ": install the module there, or " + by; next.Reason != want {
			t.Errorf("%q: %q, want %q", typed, next.Reason, want)
		}
	}
}
