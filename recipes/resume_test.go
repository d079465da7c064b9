package recipes_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

func TestResumeGlob(t *testing.T) {
	hf := catalogued(t, "hf-trainer")
	for argv, want := range map[string]string{
		"x.py --output_dir out/run":  "out/run/checkpoint-*",
		"x.py --output-dir=out":      "out/checkpoint-*",
		"x.py --learning_rate 1":     "",
		"x.py --output_dir a --lr 1": "a/checkpoint-*",
	} {
		glob, ok := hf.ResumeGlob(recipes.Command{Argv: strings.Fields(argv)})
		if ok != (want != "") || ok && glob != want {
			t.Errorf("%s: %q, %v; want %q", argv, glob, ok, want)
		}
	}
	for script, want := range map[string]bool{
		"trainer.train()": false, "trainer.train(model_path=a.model)": false, "model.train()\ntrainer.train(resume_from_checkpoint=a.resume_from_checkpoint)": true, "run(trainer)": true,
		"trainer.train()  # after get_last_checkpoint": true,
	} {
		if _, ok := hf.ResumeGlob(recipes.Command{Argv: strings.Fields("x.py --output_dir out"), Script: []byte(script)}); ok != want {
			t.Errorf("%q: %t, want %t", script, ok, want)
		}
	}
	if glob, ok := catalogued(t, "deepspeed").ResumeGlob(recipes.Command{}); ok {
		t.Errorf("a recipe without checkpoints gives %q", glob)
	}
}

// TestResumeGlobOfLightning: with a logger, or a callback that has a folder, the checkpoints are elsewhere.
func TestResumeGlobOfLightning(t *testing.T) {
	for code, want := range map[string]string{
		"pl.Trainer()": "./lightning_logs/version_*/checkpoints/*.ckpt",
		"pl.Trainer(default_root_dir='out', logger=True)":      "out/lightning_logs/version_*/checkpoints/*.ckpt",
		"pl.Trainer(default_root_dir=args.dir)":                "",
		"pl.Trainer(logger=TensorBoardLogger('tb'))":           "",
		"pl.Trainer(callbacks=[ModelCheckpoint()])":            "./lightning_logs/version_*/checkpoints/*.ckpt",
		"pl.Trainer(callbacks=[ModelCheckpoint(dirpath='c')])": "",
	} {
		cmd := recipes.Command{Argv: []string{"x.py"}, Script: []byte("import lightning.pytorch as pl\nfrom lightning.pytorch.callbacks import ModelCheckpoint\n" + code + "\n")}
		if glob, ok := catalogued(t, "lightning-code").ResumeGlob(parsed(t, cmd)); ok != (want != "") || ok && glob != want {
			t.Errorf("%s: %q, %t; want %q", code, glob, ok, want)
		}
	}
}

// TestResumeGlobOfMovedLogs: a file of LightningCLI, or a call that takes the rest from the command, may name another
// folder than Lightning's own.
func TestResumeGlobOfMovedLogs(t *testing.T) {
	for yaml, want := range map[string]bool{
		"trainer:\n  max_epochs: 1\n":                                         true,
		"trainer:\n  default_root_dir: out\n":                                 false,
		"trainer:\n  callbacks:\n  - init_args: {save_weights_only: true}\n":  false,
		"trainer:\n  default_root_dir: null\n":                                true,
		"trainer:\n  callbacks:\n  - init_args:\n      dirpath: \"a/b\"\n":    false,
		"trainer:\n  logger:\n    init_args:\n      save_dir: ${root}/logs\n": false,
	} {
		cmd := recipes.Command{Argv: strings.Fields("x.py fit --config a.yaml"), Files: map[string][]byte{"a.yaml": []byte(yaml)}}
		if _, ok := catalogued(t, "lightning").ResumeGlob(cmd); ok != want {
			t.Errorf("%q: %t, want %t", yaml, ok, want)
		}
	}
	logged := recipes.Command{Argv: strings.Fields("x.py fit --trainer.max_epochs=1 --trainer.logger.save_dir=logs")}
	if glob, ok := catalogued(t, "lightning").ResumeGlob(logged); ok {
		t.Errorf("a logger of the command: %s", glob)
	}
	for code, want := range map[string]bool{
		"super().add_arguments(default_config_files=['trainer.yaml'])":                         false,
		"parser.set_defaults({'trainer.logger': lazy_instance(CSVLogger, save_dir='output')})": false,
		"Trainer.from_argparse_args(args)":                                                     true,
		"Trainer.from_argparse_args(args, max_epochs=1, default_root_dir=join(a, b))":          false,
		"if not args.default_root_dir:\n    args.default_root_dir = args.data":                 false,
		"@hydra.main(config_path='conf')\ndef main(cfg): pass":                                 false,
	} {
		for resumes, has := range map[string]bool{"\ntrainer.fit(model, ckpt_path=args.ckpt_path)\n": true, "\ntrainer.fit(model)\n": false} {
			if _, ok := catalogued(t, "lightning-script").ResumeGlob(recipes.Command{Argv: []string{"x.py"}, Script: []byte(code + resumes)}); ok != (want && has) {
				t.Errorf("%s: %t, want %t", code+resumes, ok, want && has)
			}
		}
	}
}

// TestResumeGlobOfAccelerate: only a script that saves its state can continue from one.
func TestResumeGlobOfAccelerate(t *testing.T) {
	for code, want := range map[string]bool{"accelerator.save_state(path)": true, "load(args.resume_from_checkpoint)": true, "model.save_pretrained(path)": false, "accelerator.save_state(f\"checkpoint-{n}\")": false} {
		if _, ok := catalogued(t, "accelerate").ResumeGlob(recipes.Command{Argv: strings.Fields("x.py --output_dir out"), Script: []byte(code)}); ok != want {
			t.Errorf("%s: %t, want %t", code, ok, want)
		}
	}
}

// TestResumeFromTrainerState: the Trainer takes its batch size from the checkpoint, so the
// checkpoint is copied with the new one.
func TestResumeFromTrainerState(t *testing.T) {
	hf := catalogued(t, "hf-trainer")
	const state = "{\n  \"global_step\": 120,\n  \"train_batch_size\": 8\n}\n"
	cmd := recipes.Command{
		Argv:  strings.Fields("x.py --output_dir out --per_device_train_batch_size 8"),
		Files: map[string][]byte{"out/checkpoint-120/trainer_state.json": []byte(state)},
	}
	if diff := cmp.Diff([]string{"out/checkpoint-120/trainer_state.json"}, hf.ResumeFiles("out/checkpoint-120")); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	plan := strategy.Plan{strategy.MicroBatchSize: "4", strategy.GradientAccumulationSteps: "2"}
	change, err := hf.Apply(cmd, plan, recipes.Topology{Ranks: 1}, attempt)
	testenv.Check(t, err)
	resumed, err := hf.ResumeFrom(change, cmd, plan, "out/checkpoint-120", attempt)
	testenv.Check(t, err)
	want := change
	want.Argv = append(want.Argv[:len(want.Argv):len(want.Argv)], "--resume_from_checkpoint", attempt+"/checkpoint/checkpoint-120")
	want.Files = map[string][]byte{"checkpoint/checkpoint-120/trainer_state.json": []byte(strings.Replace(state, "8", "4", 1))}
	want.Siblings = map[string]string{"checkpoint/checkpoint-120": "out/checkpoint-120"}
	want.Diff = resumed.Diff
	if diff := cmp.Diff(want, resumed); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !strings.Contains(resumed.Diff, `+  "train_batch_size": 4`) || !strings.Contains(resumed.Diff, "+--resume_from_checkpoint") {
		t.Errorf("diff\n%s", resumed.Diff)
	}
	if len(change.Files) != 0 {
		t.Error("ResumeFrom changed the change that it was given")
	}
}

func TestResumeFromPlainCheckpoint(t *testing.T) {
	hf := catalogued(t, "hf-trainer")
	tests := []struct{ name, argv, state, want string }{
		{"same batch size", "x.py --output_dir out", `{"train_batch_size": 8}`, "x.py --output_dir out --resume_from_checkpoint out/checkpoint-5"},
		{"none stored", "x.py --output_dir out", `{"train_batch_size": null}`, "x.py --output_dir out --resume_from_checkpoint out/checkpoint-5"},
		{"no state file", "x.py --output_dir out", "", "x.py --output_dir out --resume_from_checkpoint out/checkpoint-5"},
		{"the user's own", "x.py --resume_from_checkpoint=True --output_dir out", "", "x.py --resume_from_checkpoint=out/checkpoint-5 --output_dir out"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cmd := recipes.Command{Argv: strings.Fields(test.argv), Files: map[string][]byte{}}
			if test.state != "" {
				cmd.Files["out/checkpoint-5/trainer_state.json"] = []byte(test.state)
			}
			plan, _, err := hf.Read(cmd, recipes.Topology{Ranks: 1})
			testenv.Check(t, err)
			change, err := hf.ResumeFrom(strategy.Command{Argv: cmd.Argv}, cmd, plan, "out/checkpoint-5", attempt)
			if err != nil || strings.Join(change.Argv, " ") != test.want || len(change.Files) > 0 {
				t.Errorf("%v, %v, files %d; want %s", change.Argv, err, len(change.Files), test.want)
			}
		})
	}
}

func TestResumeArguments(t *testing.T) {
	for args, want := range map[string]string{
		"--resume {latest}":             "x.py --resume c/1 a=b",
		"--load={latest} --finetune":    "x.py a=b --load c/1 --finetune",
		"--resume auto --from {latest}": "x.py --resume auto a=b --from c/1",
		"a={latest}":                    "x.py --resume old a=c/1",
	} {
		r := recipes.Recipe{Recipe: format.Recipe{Resume: recipes.Resume{Latest: "c/*", Args: strings.Fields(args)}}}
		argv := "x.py --resume old a=b"
		if strings.HasPrefix(args, "--load") {
			argv = "x.py a=b"
		}
		change, err := r.ResumeFrom(strategy.Command{Argv: strings.Fields(argv)}, recipes.Command{}, nil, "c/1", attempt)
		if got := strings.Join(change.Argv, " "); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", args, got, err, want)
		}
	}
}

// TestResumeInFile: if one file has all arguments, an additional word would make the job read its
// command line differently.
func TestResumeInFile(t *testing.T) {
	hf := catalogued(t, "hf-trainer")
	cmd := recipes.Command{Argv: []string{"x.py", "conf/a.json"}, Files: map[string][]byte{
		"conf/a.json": []byte(`{"output_dir": "out", "per_device_train_batch_size": 8}`),
	}}
	for name, plan := range map[string]strategy.Plan{
		"file changed already": {strategy.MicroBatchSize: "4"},
		"file as it was":       {},
	} {
		t.Run(name, func(t *testing.T) {
			change, err := hf.Apply(cmd, plan, recipes.Topology{Ranks: 1}, attempt)
			testenv.Check(t, err)
			resumed, err := hf.ResumeFrom(change, cmd, plan, "out/checkpoint-5", attempt)
			testenv.Check(t, err)
			micro := "8"
			if len(plan) > 0 {
				micro = "4"
			}
			want := `{"output_dir": "out", "per_device_train_batch_size": ` + micro + `, "resume_from_checkpoint": "out/checkpoint-5"}`
			if got := string(resumed.Files["config/a.json"]); got != want {
				t.Errorf("file %s, want %s", got, want)
			}
			if diff := cmp.Diff([]string{"x.py", attempt + "/config/a.json"}, resumed.Argv); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The Trainer's variables name the run and its folder. A tracker is left to the user if one of
// its variables is set; the others are not.
func TestTracked(t *testing.T) {
	const wandb = "WANDB_RUN_ID=r1 WANDB_RESUME=allow"
	for _, test := range []struct{ recipe, argv, env, want string }{
		{"hf-trainer", "x.py --output_dir out", "", wandb + " TENSORBOARD_LOGGING_DIR=out/runs/r1"},
		{"hf-trainer", "x.py", "HOME=/", wandb + " TENSORBOARD_LOGGING_DIR=trainer_output/runs/r1"},
		{"hf-trainer", "x.py", "WANDB_RUN_ID=mine", "TENSORBOARD_LOGGING_DIR=trainer_output/runs/r1"},
		{"hf-trainer", "x.py", "WANDB_RESUME=", "TENSORBOARD_LOGGING_DIR=trainer_output/runs/r1"},
		{"hf-trainer", "x.py", "TENSORBOARD_LOGGING_DIR=tb", wandb},
		{"trl", "x.py", "", wandb + " TENSORBOARD_LOGGING_DIR=trainer_output/runs/r1"},
		{"lightning", "x.py fit", "", wandb},
		{"torchtune", "x.py", "", ""},
	} {
		want := map[string]string{}
		for _, word := range strings.Fields(test.want) {
			name, value, _ := strings.Cut(word, "=")
			want[name] = value
		}
		env := map[string]string{}
		if name, value, set := strings.Cut(test.env, "="); set {
			env[name] = value
		}
		got := catalogued(t, test.recipe).Tracked(recipes.Command{Argv: strings.Fields(test.argv), Env: env}, "r1")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s, with %q (-want +got):\n%s", test.recipe, test.argv, test.env, diff)
		}
	}
}

// A variable without a value in the command is omitted; a job's own [resume] keeps the variables.
func TestTrackedOfARecipe(t *testing.T) {
	r := parsedRecipe(t, "[resume]\nenv = { A_DIR = \"{out}/{job}\", A_ID = \"{job}\" }\nvalues = { out = [{ arg = \"--out\" }] }\n")
	own := parsedRecipe(t, "[resume]\nlatest = \"x-*\"\nargs = [\"--from\", \"{latest}\"]\n")
	for _, recipe := range []recipes.Recipe{r, r.With(own)} {
		cmd := recipes.Command{Argv: []string{"x.py", "--out", "o"}}
		want := map[string]string{"A_DIR": "o/j", "A_ID": "j"}
		if recipe.Resume.Own {
			delete(want, "A_DIR") // with the values
		}
		if diff := cmp.Diff(want, recipe.Tracked(cmd, "j")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[string]string{"A_ID": "j"}, recipe.Tracked(recipes.Command{Argv: []string{"x.py"}}, "j")); diff != "" {
			t.Errorf("without --out (-want +got):\n%s", diff)
		}
	}
}

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
