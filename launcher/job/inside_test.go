package job

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy"
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
			if err != nil {
				t.Fatal(err)
			}
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
		if err != nil {
			t.Fatal(err)
		}
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
		if err != nil {
			t.Fatal(err)
		}
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
	if err != nil {
		t.Fatal(err)
	}
	if p.RecipeName() != "hf-trainer-code" || p.Plan()[strategy.MicroBatchSize] != "16" || p.Plan()[strategy.GradientAccumulationSteps] != "" {
		t.Fatalf("recipe %s, plan %s", p.RecipeName(), p.Plan())
	}
	c, err := p.Apply(p.Plan().With(strategy.Plan{strategy.MicroBatchSize: "8", strategy.GradientAccumulationSteps: "4"}), nil, "", dir)
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	if glob := p.Checkpoints().Glob; glob != "out/checkpoint-*" {
		t.Errorf("checkpoints are looked for in %q", glob)
	}
	c, err := p.Apply(p.Plan(), nil, "out/checkpoint-5", dir)
	if err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
		if got := p.StrategyJob().Knobs[strategy.MicroBatchSize].Reported; got != test.told {
			t.Errorf("%s: %t", name, got)
		}
	}
}
