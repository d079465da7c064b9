package job

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// What a job has no switch for is turned in its process, where nothing of the user's
// stands against it; who does not want that says so.
func TestTurnedInside(t *testing.T) {
	const torch = "import torch\nloader = torch.utils.data.DataLoader(data, batch_size=8)\n"
	checkpointing := strategy.ActivationCheckpointing
	for name, test := range map[string]struct {
		files  map[string]string
		launch string
		argv   string
		by     strategy.By
		reason string // why it cannot be turned at all
	}{
		"a loop of one's own": {files: map[string]string{"train.py": torch}, by: strategy.ByHook},
		"through a module":    {files: map[string]string{"train.py": "import model\n", "model.py": torch}, by: strategy.ByHook},
		"compiled":            {files: map[string]string{"train.py": torch + "model = Net()\nmodel = torch.compile(model)\n"}, by: strategy.ByHook},
		"hooks off":           {files: map[string]string{"train.py": torch}, launch: "hooks = false", reason: "launch.hooks = false"},
		"no probe":            {files: map[string]string{"train.py": torch}, launch: "probe = false", reason: "no [knobs] entry for it"},
		"a switch of its own": {files: map[string]string{"train.py": "from transformers import HfArgumentParser, TrainingArguments\n"}, argv: "--output_dir out"},
		"FSDP's own is ruled out": {
			files: map[string]string{"train.py": "from transformers import HfArgumentParser, TrainingArguments\n", "fsdp.json": `{"activation_checkpointing": true}`},
			argv:  "--output_dir out --fsdp full_shard --fsdp_config fsdp.json", reason: "FSDP checkpoints activations",
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.files["train.toml"] = "[job]\ncommand = \"python3 train.py " + test.argv + "\"\n[launch]\n" + test.launch + "\n"
			dir, _ := folder(t, test.files)
			p, err := prepared(t, dir, machine(dir), "train.toml")
			testenv.Check(t, err)
			got := p.StrategyJob().Knobs[checkpointing]
			if got.By != test.by || (got.Absent == "") != (test.reason == "") || !strings.Contains(got.Absent, test.reason) {
				t.Errorf("checkpointing is turned by %q, absent %q", got.By, got.Absent)
			}
			if test.by != strategy.ByHook {
				return
			}
			plan := p.Plan().With(strategy.Plan{checkpointing: "full"})
			c, err := p.Apply(plan, nil, "", dir)
			if err != nil || c.Turn[checkpointing] != "full" || len(c.Turn) != 1 || c.Diff != "" {
				t.Errorf("turned %v, changed %q, %v", c.Turn, c.Diff, err)
			}
		})
	}
}

// Ranks that share gradients or parameters need each backward pass as a whole.
func TestNoPartsForShardedRanks(t *testing.T) {
	for config, want := range map[string]string{
		"distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3\n": "accelerate launch uses ZeRO stage 3",
		"distributed_type: FSDP\nfsdp_config: {}\n":                         "accelerate launch uses FSDP",
		"distributed_type: MULTI_GPU\n":                                     "",
	} {
		dir, _ := folder(t, map[string]string{"train.py": "import torch\nfrom transformers import Trainer\nTrainer().train()\n", "a.yaml": "num_processes: 2\nnum_machines: 1\nmachine_rank: 0\n" + config})
		p, err := prepared(t, dir, machine(dir), "accelerate", "launch", "--config_file", "a.yaml", "train.py")
		testenv.Check(t, err)
		if why := p.StrategyJob().Knobs[strategy.ForwardParts].Absent; !strings.HasPrefix(why, want) || want == "" && why != "" {
			t.Errorf("%s: %q", config, why)
		}
	}
}

// A shell script that replaces PYTHONPATH keeps gpurun's hook out of the process.
func TestShellScriptThatHidesTheHook(t *testing.T) {
	for line, hidden := range map[string]bool{"export PYTHONPATH=/opt/lib": true, "PYTHONPATH=. python3 train.py": true, "export PYTHONPATH=$PYTHONPATH:/opt/lib": false, "export PYTHONPATH=\"lib:${PYTHONPATH}\"": false, "# PYTHONPATH=x": false, `PYTHONPATH="$(dirname $0)/..":$PYTHONPATH \\`: false, "python3 train.py": false} {
		dir, _ := folder(t, map[string]string{"run.sh": "#!/bin/sh\n" + line + "\n"})
		p, err := prepared(t, dir, machine(dir), "sh", "run.sh")
		testenv.Check(t, err)
		if own := p.StrategyJob().Knobs[strategy.ActivationCheckpointing]; strings.HasSuffix(own.Absent, "run.sh replaces PYTHONPATH, so gpurun does not reach the process") != hidden || p.StrategyJob().Knobs[strategy.MicroBatchSize].Reported == hidden {
			t.Errorf("%s: %+v", line, own)
		}
	}
}

// A call in the code is changed by the probe, and what it computes is left to the
// process to say.
func TestCallsInCode(t *testing.T) {
	files := map[string]string{
		"train.py":   "from transformers import Trainer, TrainingArguments\nargs = TrainingArguments('out', per_device_train_batch_size=16, gradient_accumulation_steps=steps())\n",
		"train.toml": "[job]\ncommand = \"python3 train.py\"\n",
	}
	dir, _ := folder(t, files)
	p, err := prepared(t, dir, machine(dir), "train.toml")
	testenv.Check(t, err)
	if p.RecipeName() != "hf-trainer-code" || p.Plan()[strategy.MicroBatchSize] != "16" || p.Plan()[strategy.GradientAccumulationSteps] != "" {
		t.Fatalf("recipe %s, plan %s", p.RecipeName(), p.Plan())
	}
	c, err := p.Apply(p.Plan().With(strategy.Plan{strategy.MicroBatchSize: "8", strategy.GradientAccumulationSteps: "4"}), nil, "", dir)
	testenv.Check(t, err)
	want := []strategy.Call{
		{Name: "transformers.TrainingArguments", Keyword: "per_device_train_batch_size", Knob: strategy.MicroBatchSize, From: int64(16), To: int64(8)},
		{Name: "transformers.TrainingArguments", Keyword: "gradient_accumulation_steps", Knob: strategy.GradientAccumulationSteps, To: int64(4)},
	}
	if len(c.Calls) != 2 || c.Calls[0].To != want[0].To || c.Calls[0].From != want[0].From || c.Calls[1].From != nil || c.Calls[1].To != want[1].To {
		t.Errorf("calls %+v, want %+v", c.Calls, want)
	}
	if !strings.Contains(c.Diff, "-TrainingArguments(per_device_train_batch_size=16)\n") {
		t.Errorf("diff %s", c.Diff)
	}
}

// The Trainer resumes from its newest checkpoint, which only its code could tell it.
func TestResumeInCode(t *testing.T) {
	files := map[string]string{
		"train.py":                            "from transformers import Trainer, TrainingArguments\nargs = TrainingArguments('out', per_device_train_batch_size=16)\n",
		"train.toml":                          "[job]\ncommand = \"python3 train.py\"\n",
		"out/checkpoint-5/trainer_state.json": `{"train_batch_size": 16}`,
	}
	dir, _ := folder(t, files)
	p, err := prepared(t, dir, machine(dir), "train.toml")
	testenv.Check(t, err)
	if glob := p.Checkpoints().Glob; glob != "out/checkpoint-*" {
		t.Errorf("checkpoints are looked for in %q", glob)
	}
	c, err := p.Apply(p.Plan(), nil, "out/checkpoint-5", dir)
	testenv.Check(t, err)
	if len(c.Calls) != 1 || c.Calls[0].Name != "transformers.Trainer.train" || c.Calls[0].Keyword != "resume_from_checkpoint" || c.Calls[0].To != "out/checkpoint-5" {
		t.Errorf("calls %+v", c.Calls)
	}
}

// The program that a shell script or another script starts was not read: its process reports the micro batch.
func TestProgramsThatOthersStartReportTheirBatch(t *testing.T) {
	for name, test := range map[string]struct {
		files   map[string]string
		command []string
		told    bool
	}{
		"a shell script": {map[string]string{"run.sh": "python train.py\n"}, []string{"bash", "run.sh"}, true},
		"os.system":      {map[string]string{"run.py": "import os\nos.system('python train.py')\n"}, []string{"python3", "run.py"}, true},
		"a script":       {map[string]string{"run.py": "print(1)\n"}, []string{"python3", "run.py"}, true},
	} {
		dir, _ := folder(t, test.files)
		p, err := prepared(t, dir, machine(dir), test.command...)
		testenv.Check(t, err)
		if got := p.StrategyJob().Knobs[strategy.MicroBatchSize].Reported; got != test.told {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// put writes a file, in folders that it makes.
func put(t *testing.T, path, text string) {
	t.Helper()
	testenv.Check(t, os.MkdirAll(filepath.Dir(path), 0o755))
	testenv.Check(t, os.WriteFile(path, []byte(text), 0o755))
}

// libaio counts where DeepSpeed can compile and link with it: the library alone, as
// a program needs it to run, is not enough.
func TestLibaioIsWhereItCanBeLinked(t *testing.T) {
	prefix := t.TempDir()
	python := filepath.Join(prefix, "bin", "python3")
	for _, folder := range []string{"bin", "lib", "include", "other"} {
		testenv.Check(t, os.Mkdir(filepath.Join(prefix, folder), 0o755))
	}
	var env commandline.Environ
	if HasLibaio(python, env) {
		t.Skip("this machine has libaio-dev")
	}
	put(t, filepath.Join(prefix, "lib", "libaio.so.1"), "")
	put(t, filepath.Join(prefix, "include", "libaio.h"), "")
	if HasLibaio(python, env) {
		t.Error("libaio.so.1 cannot be linked with")
	}
	put(t, filepath.Join(prefix, "other", "libaio.so"), "")
	env = commandline.Environ{"LDFLAGS": "-O2 -L" + filepath.Join(prefix, "other")}
	if !HasLibaio(python, env) {
		t.Error("LDFLAGS names the folder")
	}
	env = nil
	put(t, filepath.Join(prefix, "lib", "libaio.so"), "")
	if !HasLibaio(python, env) {
		t.Error("the interpreter's own environment has it")
	}
}

// A fused loss needs its package. Where the interpreter's packages are not known, nothing is missing.
func TestFusedLossNeedsItsPackage(t *testing.T) {
	for _, test := range []struct {
		packages map[string]string
		missing  bool
	}{
		{nil, false},
		{map[string]string{"transformers": "5.23.0"}, true},
		{map[string]string{"liger-kernel": "0.6.4"}, false},
	} {
		var p Prepared
		p.command.Packages = test.packages
		if got := p.Missing()[strategy.RemedyFusedLoss]; (got != "") != test.missing {
			t.Errorf("%v: %q", test.packages, got)
		}
	}
}

// A job whose framework would offload through DeepSpeed, which is not installed, keeps its optimizer's states in host
// memory by the hook.
func TestStatesLeaveByTheHookWithoutDeepSpeed(t *testing.T) {
	for name, test := range map[string]struct {
		packages map[string]string
		plan     strategy.Plan
		by       strategy.By
	}{
		"not installed":           {map[string]string{"transformers": "5.23.0"}, strategy.Plan{strategy.OffloadOptimizer: "none"}, strategy.ByHook},
		"installed":               {map[string]string{"deepspeed": "0.19.8"}, strategy.Plan{strategy.OffloadOptimizer: "none"}, ""},
		"not known":               {nil, strategy.Plan{strategy.OffloadOptimizer: "none"}, ""},
		"the job offloads itself": {map[string]string{}, strategy.Plan{strategy.OffloadOptimizer: "cpu"}, ""},
	} {
		var r Resolved
		r.Job.Launch.Probe, r.Job.Launch.Hooks, r.Job.Argv, r.Job.Kind = true, true, []string{"bash", "run.sh"}, Program
		r.recipe.Rules, r.command.Packages = []string{"deepspeed-config"}, test.packages
		knobs := map[strategy.Knob]strategy.Range{strategy.OffloadOptimizer: {Values: []strategy.Value{"none", "cpu"}}}
		r.inside(test.plan, knobs)
		if got := knobs[strategy.OffloadOptimizer].By; got != test.by {
			t.Errorf("%s: by %q", name, got)
		}
		if _, set := test.plan[strategy.OffloadOptimizer]; set == (test.by == strategy.ByHook) {
			t.Errorf("%s: the plan has it: %t", name, set)
		}
	}
}

// TestHintsNameTheJobsOwnCode: a hint or a reason has the names, lines and values of the job's code, not
// those of a library or of a recipe.
func TestHintsNameTheJobsOwnCode(t *testing.T) {
	const (
		torch      = "import torch\nfrom torch.utils.data import DataLoader\n"
		module     = "class M(pl.LightningModule):\n    pass\n"
		arguments  = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--bs', type=int, default=8)\nargs = p.parse_args()\n"
		accelerate = "from accelerate import Accelerator\naccelerator = Accelerator()\n"
		loop       = "for x in loader:\n    with accelerator.accumulate(model):\n        accelerator.backward(model(x).loss)\n        optimizer.step()\n"
		plain      = "for x in loader:\n    model(x).mean().backward()\n    optimizer.step()\n"
	)
	for name, test := range map[string]struct {
		files map[string]string
		words string
		// want is in the code that is proposed for the micro batch 4, in the value of the micro batch, or in
		// the reason why it cannot change. not is in none of them.
		want, not string
	}{
		"pl.Trainer": {map[string]string{"train.py": torch + "import pytorch_lightning as pl\n" + module + "trainer = pl.Trainer(max_epochs=3)\ntrainer.fit(M(), DataLoader(data, batch_size=16, shuffle=True))\n"},
			"", "DataLoader(…, batch_size=4) (train.py:7); pl.Trainer(…, accumulate_grad_batches=2) (train.py:6)", "lightning.pytorch.Trainer"},
		"L.Trainer": {map[string]string{"train.py": torch + "import lightning as L\nL.Trainer(max_epochs=3).fit(L.LightningModule(), DataLoader(data, batch_size=16, shuffle=True))\n"},
			"", "L.Trainer(…, accumulate_grad_batches=2) (train.py:4)", "lightning.pytorch.Trainer"},
		"a data module": {map[string]string{"train.py": torch + "import pytorch_lightning as pl\n" + module + "class DM(pl.LightningDataModule):\n    def __init__(self, batch_size=16):\n        self.batch_size = batch_size\n    def train_dataloader(self):\n        return DataLoader(self.data, batch_size=self.batch_size, shuffle=True)\ntrainer = pl.Trainer(max_epochs=3)\ntrainer.fit(M(), datamodule=DM(batch_size=64))\n"},
			"", "DM(…, batch_size=4) (train.py:12)", "DataLoader(…"},
		"Accelerate with an argument": {map[string]string{"train.py": torch + arguments + accelerate + "loader = DataLoader(data, batch_size=args.bs, shuffle=True)\n" + loop},
			"accelerate launch train.py --bs 4", "likely 4 by --bs", "--per_device_train_batch_size"},
		"a loader that is not shuffled": {map[string]string{"train.py": torch + "import lightning as L\nL.Trainer(max_epochs=3).fit(L.LightningModule(), DataLoader(data, batch_size=16))\n"},
			"", "only a process can say where it calls torch.utils.data.DataLoader", "has no"},
		"no loader": {map[string]string{"train.py": "import torch\nimport lightning as L\nL.Trainer(max_epochs=3).fit(L.LightningModule(), loader)\n"},
			"", "only a process can say where it calls torch.utils.data.DataLoader", "has no"},
		"an argument of the script": {map[string]string{"train.py": torch + "from dataclasses import dataclass\n@dataclass\nclass Args:\n    batch_size: int = 4\n" + arguments + "cfg = Args(batch_size=args.bs)\nloader = DataLoader(data, batch_size=cfg.batch_size, shuffle=True)\n" + plain},
			"train.py --bs 32", "likely 32 by --bs", "4"},
		"a key of a file": {map[string]string{"a.yaml": "TRAIN:\n  BATCH: 48\n", "train.py": torch + "import argparse\nfrom yacs.config import CfgNode as CN\n_C = CN()\n_C.TRAIN = CN()\n_C.TRAIN.BATCH = 64\np = argparse.ArgumentParser()\np.add_argument('--cfg')\nargs = p.parse_args()\ncfg = _C.clone()\ncfg.merge_from_file(args.cfg)\nloader = DataLoader(data, batch_size=cfg.TRAIN.BATCH, shuffle=True)\n" + plain},
			"train.py --cfg a.yaml", "likely 48 by TRAIN.BATCH of a.yaml", "64"},
		"a loader in another module": {map[string]string{"train.py": "import torch\nimport lightning as L\nfrom mine import loader\nL.Trainer(max_epochs=3).fit(L.LightningModule(), loader(16))\n", "mine.py": "from torch.utils.data import DataLoader\ndef loader(n):\n    return DataLoader([], batch_size=n, shuffle=True)\n"},
			"", "DataLoader(…, batch_size=4) (mine.py:3)", "no call of"},
	} {
		t.Run(name, func(t *testing.T) {
			argv := strings.Fields(test.words)
			if len(argv) == 0 {
				argv = []string{"train.py"}
			}
			dir, p := ownJob(t, test.files, argv...)
			got := []string{p.Value(strategy.MicroBatchSize), p.StrategyJob().Knobs[strategy.MicroBatchSize].Absent}
			if proposal, err := p.Propose(p.Plan().With(strategy.Plan{strategy.MicroBatchSize: "4", strategy.GradientAccumulationSteps: "2"}), nil, dir, 1, nowhere); err == nil {
				got = append(got, strings.Join(proposal.Code, "; "))
			}
			all := strings.Join(got, "\n")
			if !strings.Contains(all, test.want) || strings.Contains(all, test.not) {
				t.Errorf("%s\nwant %q, and not %q", all, test.want, test.not)
			}
		})
	}
}

// TestModelsOfTheJobHaveNoMethodsOfLibraries: gradient_checkpointing_enable is proposed only where the code
// uses a library whose models have it.
func TestModelsOfTheJobHaveNoMethodsOfLibraries(t *testing.T) {
	const loop = "import torch\nfor x in torch.utils.data.DataLoader(data, batch_size=8, shuffle=True):\n    model(x).mean().backward()\n    optimizer.step()\n"
	for text, want := range map[string]bool{loop: true, "from transformers import AutoModel\n" + loop: false} {
		dir, p := ownJob(t, map[string]string{"train.py": text}, "train.py")
		proposal, err := p.Propose(p.Plan().With(strategy.Plan{strategy.ActivationCheckpointing: "full"}), nil, dir, 1, nowhere)
		if err != nil || len(proposal.Turned) == 0 || proposal.OwnModel != want {
			t.Errorf("%s%v: turned %v, own model %v, want %v", text, err, proposal.Turned, proposal.OwnModel, want)
		}
	}
}
