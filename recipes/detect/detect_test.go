package detect_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/recipes/detect"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

func TestDetect(t *testing.T) {
	const hfArgs = "x.py --output_dir out --per_device_train_batch_size 8"
	tests := []struct {
		name, argv, script, config string
		want                       string
		evidence                   []string
	}{
		{"from import", hfArgs, "from transformers import HfArgumentParser, Trainer\nfrom transformers import TrainingArguments\n", "", "hf-trainer", []string{
			"the script imports HfArgumentParser (transformers)", "the command has --output_dir", "the command has --per_device_train_batch_size"}},
		{"import over lines", hfArgs, "from transformers import (  # all\n    AutoModel,\n    HfArgumentParser as P,\n)\nfrom transformers import TrainingArguments\n", "", "hf-trainer", nil},
		{"qualified", hfArgs, "import numpy as np, transformers as tf\np = tf.HfArgumentParser(X)\nfrom transformers import TrainingArguments\n", "", "hf-trainer", nil},
		{"continued line", hfArgs, "from transformers import Trainer, \\\n  HfArgumentParser\nfrom transformers import TrainingArguments\n", "", "hf-trainer", nil},
		{"inside a function", hfArgs, "def main():\n    from transformers import HfArgumentParser\nfrom transformers import TrainingArguments\n", "", "hf-trainer", nil},
		{"no parser", hfArgs, "from transformers import Trainer, TrainingArguments\n", "", "", nil},
		{"commented out", hfArgs, "# from transformers import HfArgumentParser\n", "", "", nil},
		{"no arguments", "x.py", "from transformers import HfArgumentParser\n", "", "", nil},
		{"another dataclass", hfArgs, "from transformers import HfArgumentParser, Trainer\n@dataclass\nclass Args:\n    output_dir: str\nHfArgumentParser(Args)\n", "", "", nil},
		{"training arguments in code alone", hfArgs, "from transformers import HfArgumentParser, TrainingArguments\nclass Args:\n    lr: float\nargs = HfArgumentParser((Args,)).parse_args_into_dataclasses()\nTrainingArguments(output_dir='x')\n", "", "", nil},
		{"a class that extends them", hfArgs, "from transformers import HfArgumentParser, TrainingArguments\nclass Base(TrainingArguments):\n    pass\nclass Args(Base):\n    lr: float = 1\nHfArgumentParser((Other, Args))\n", "", "hf-trainer", nil},
		{"classes in a variable", hfArgs, "from transformers import HfArgumentParser, TrainingArguments\nHfArgumentParser(classes)\n", "", "hf-trainer", nil},
		{"trl", hfArgs, "from transformers import HfArgumentParser\nfrom trl import SFTConfig\n", "", "", nil},
		{"trl's configuration by the Trainer's parser", hfArgs, "from transformers import HfArgumentParser\nfrom trl import SFTConfig\nHfArgumentParser((Script, SFTConfig))\n", "", "trl", nil},
		{"trl's configuration made in code", hfArgs, "from transformers import HfArgumentParser\nfrom trl import SFTConfig\nSFTConfig(output_dir='x')\n", "", "", nil},
		{"no source", hfArgs, "", "", "", nil},
		{"no source, and names that anybody uses", "pkg.train --batch-size 4 --model resnet50 --opt sgd", "", "", "", nil},
		{"no source and one common argument", "x.py --output_dir out", "", "", "", nil},
		{"deepspeed", "x.py --deepspeed_config ds.json", "import deepspeed\n", "", "deepspeed", []string{
			"the script imports deepspeed", "the command has --deepspeed_config"}},
		{"deepspeed submodule", "x.py --deepspeed ds.json", "from deepspeed.ops.adam import FusedAdam\n", "", "deepspeed", nil},
		{"deepspeed keys", "x.py --deepspeed_config ds.json", "", `{"zero_optimization": {}, "train_batch_size": 8}`, "deepspeed", []string{
			"the command has --deepspeed_config", "ds.json has train_batch_size, zero_optimization"}},
		{"both", hfArgs + " --deepspeed ds.json", "import deepspeed\nfrom transformers import HfArgumentParser\nfrom transformers import TrainingArguments\n", "{}", "hf-trainer", nil},
		{"verl's RL trainer", "verl.trainer.main_ppo algorithm.adv_estimator=grpo", "", "", "verl-rl", nil},
		{"another of verl's programs", "verl.trainer.main_eval data.path=x", "", "", "", nil},
		{"OpenRLHF", "openrlhf.cli.train_ppo_ray --micro_rollout_batch_size 8", "", "", "openrlhf", nil},
		{"OpenRLHF's supervised trainer", "openrlhf.cli.train_sft --micro_train_batch_size 8", "", "", "", nil},
		{"neither", "x.py --lr 1", "import torch\n", "", "", nil},
	}
	all, err := recipes.Embedded()
	testenv.Check(t, err)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cmd := recipes.Command{Argv: strings.Fields(test.argv), Files: map[string][]byte{}}
			if test.script != "" {
				cmd.Script, cmd.Code = []byte(test.script), detect.CodeOf(t, test.script)
			}
			if test.config != "" {
				cmd.Files["ds.json"] = []byte(test.config)
			}
			r, evidence, found := detect.Detect(cmd, all)
			if r.Name != test.want || found != (test.want != "") {
				t.Errorf("found %q, want %q (%v)", r.Name, test.want, evidence)
			}
			if test.evidence != nil {
				if diff := cmp.Diff(test.evidence, evidence); diff != "" {
					t.Errorf("evidence (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// TestDetectNanoGPT: train.py is recognised for every start in its README, and the scripts next
// to it that do not train are not.
func TestDetectNanoGPT(t *testing.T) {
	all, err := recipes.Embedded()
	testenv.Check(t, err)
	const head = "import torch\nfrom model import GPTConfig, GPT\nout_dir = 'out'\nbatch_size = 12 # micro\n"
	const divided = "gradient_accumulation_steps //= ddp_world_size\n"
	const tail = "dtype = 'bfloat16'\nexec(open('configurator.py').read()) # overrides from command line or config file\n"
	train, bench := []byte(head+"gradient_accumulation_steps = 5 * 8\n"+tail+divided), []byte(head+tail)
	config := map[string][]byte{"config/train_gpt2.py": []byte("batch_size = 8\ngradient_accumulation_steps = 5 * 4\n")}
	for line, micro := range map[string]strategy.Value{
		"train.py config/train_gpt2.py":                                    "8",
		"train.py config/train_gpt2.py --device=cpu --compile=False":       "8",
		"train.py config/train_gpt2.py --batch_size=4 --learning_rate=0.1": "4",
		"train.py":               "12",
		"train.py --compile=0":   "12",
		"train.py --out_dir=out": "12",
	} {
		cmd := recipes.Command{Argv: strings.Fields(line), Script: train, Code: detect.CodeOf(t, string(train)), Files: config}
		r, _, found := detect.Detect(cmd, all)
		if !found || r.Name != "nanogpt" {
			t.Errorf("%s: %q", line, r.Name)
			continue
		}
		plan, _, err := recipes.Recipe{Recipe: r}.Read(cmd, recipes.Topology{Ranks: 1})
		if err != nil || plan[strategy.MicroBatchSize] != micro {
			t.Errorf("%s: %v, %v", line, plan, err)
		}
	}
	for _, line := range []string{"sample.py --out_dir=out --dtype=float16", "bench.py --batch_size=4"} {
		if r, evidence, found := detect.Detect(recipes.Command{Argv: strings.Fields(line), Script: bench, Code: detect.CodeOf(t, string(bench))}, all); found {
			t.Errorf("%s: %s by %q", line, r.Name, evidence)
		}
	}
}

// TestOutdated: a framework in a version that its recipe does not know is named with both
// versions, once, and not where the recipe of another version of it matches.
func TestOutdated(t *testing.T) {
	all, err := recipes.Embedded()
	testenv.Check(t, err)
	const (
		lightning = "import pytorch_lightning as pl\nfrom torch.utils.data import DataLoader\npl.Trainer(max_epochs=3).fit(model, DataLoader(data, batch_size=8, shuffle=True))\n"
		trainer   = "from transformers import HfArgumentParser, TrainingArguments\nHfArgumentParser((TrainingArguments,))\n"
	)
	for _, test := range []struct {
		argv, text, packages string
		want                 []string
	}{
		{"x.py", lightning, "pytorch-lightning 1.9.5", []string{"the recipe lightning-code needs pytorch-lightning >=2, and here is 1.9.5: gpurun does not use it"}},
		{"x.py", lightning, "pytorch-lightning 2.1.0", nil},
		{"x.py", lightning, "lightning 1.9.5 pytorch-lightning 1.9.5", []string{"the recipe lightning-code needs lightning >=2, and here is 1.9.5: gpurun does not use it"}},
		{"x.py --output_dir out --per_device_train_batch_size 8", trainer, "transformers 4.20.1 trl 0.11", []string{"the recipe hf-trainer needs transformers >=4.31, and here is 4.20.1: gpurun does not use it"}},
		{"x.py --output_dir out --per_device_train_batch_size 8 --deepspeed ds.json", "import deepspeed\n" + trainer, "transformers 4.20.1 deepspeed 0.14", []string{"the recipe hf-trainer needs transformers >=4.31, and here is 4.20.1: gpurun uses the recipe deepspeed"}},
		{"swift.cli.sft --dataset x", "", "ms-swift 1.5", []string{"the recipe ms-swift needs ms-swift >=3, and here is 1.5: gpurun does not use it"}},
		{"swift.cli.sft --dataset x", "", "ms-swift 3.1", nil},
		{"torchtitan.train --job.config_file a.toml", "", "torchtitan 0.3.1", nil},
		{"torchtitan.train --job.config_file a.toml", "", "torchtitan 0.2", nil},
	} {
		cmd := format.Command{Argv: strings.Fields(test.argv), Packages: map[string]string{}}
		if test.text != "" {
			cmd.Script, cmd.Code = []byte(test.text), detect.CodeOf(t, test.text)
		}
		for pair := range slices.Chunk(strings.Fields(test.packages), 2) {
			cmd.Packages[pair[0]] = pair[1]
		}
		chosen, _, _ := detect.Detect(cmd, all)
		if got := detect.Outdated(cmd, all, chosen); !slices.Equal(got, test.want) {
			t.Errorf("%s with %s: %q, want %q", test.argv, test.packages, got, test.want)
		}
	}
}
