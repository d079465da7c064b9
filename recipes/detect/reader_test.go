package detect_test

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/recipes/detect"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/test/testenv"
)

// TestDetectThroughModules: a job's own modules count if the script relies on them, and the
// classes that its parsers read are followed through them.
func TestDetectThroughModules(t *testing.T) {
	const (
		hf      = "--output_dir out --per_device_train_batch_size 8"
		parsers = "from transformers import HfArgumentParser, Trainer\n"
		ours    = "from transformers import TrainingArguments\n@dataclass\nclass Ours(TrainingArguments):\n    max_len: int = 1\n"
		train   = parsers + "from pkg.args import Ours\ndef train():\n    args, = HfArgumentParser((Ours,)).parse_args_into_dataclasses()\n    Trainer(args=args).train()\n"
	)
	tests := []struct {
		name, argv string
		sources    []string // the script, then its modules
		env        map[string]string
		want       string
	}{
		{"an import and a call", "train_mem.py " + hf, []string{"from pkg.train import train\nif __name__ == '__main__':\n    train()\n", train, ours}, nil, "hf-trainer"},
		{"the module beyond", "train_mem.py " + hf, []string{"from pkg.train import main\nmain()\n", "from pkg.cli import train as main\n", train, ours}, nil, "hf-trainer"},
		{"a parser of its own", "train.py " + hf, []string{"import argparse\nfrom pkg.train import train\nargparse.ArgumentParser()\n", train, ours}, nil, ""},
		{"a module that is a script besides", "train.py " + hf, []string{"from pkg.tool import f\n", parsers + ours + "if __name__ == '__main__':\n    HfArgumentParser((Ours,))\n"}, nil, ""},
		{"trl's classes in a module", "dpo.py " + hf, []string{parsers + "from pkg.args import DPOArguments\nHfArgumentParser((DPOArguments, ))\nDPOTrainer()\n",
			"from trl import DPOConfig as TheirDPOConfig\nclass DPOArguments(TheirDPOConfig):\n    beta: float = 1\n"}, nil, "trl"},
		{"trl's name for a class of the job's own", "x.py " + hf, []string{parsers + "@dataclass\nclass SFTConfig:\n    output_dir: str\nHfArgumentParser((SFTConfig,))\n"}, nil, ""},
		{"trl imported, the Trainer's arguments read", "dpo.py " + hf, []string{parsers + "from trl.trainer.utils import Collator\n" + ours + "HfArgumentParser((Ours,))\nDPOTrainer()\n"}, nil, "hf-trainer"},
		{"TrlParser and a class of the job's own", "grpo.py " + hf, []string{"from trl import TrlParser\nfrom pkg.args import Mine\nTrlParser((Mine,))\n",
			"import trl\n@dataclass\nclass Mine(trl.GRPOConfig):\n    n: int = 1\n"}, nil, "trl"},
		{"TrlParser, and no arguments for training", "x.py " + hf, []string{"from trl import TrlParser\nclass Mine:\n    n: int = 1\nTrlParser((Mine,))\n"}, nil, ""},
		{"an Accelerator's loop reads them", "x.py " + hf, []string{parsers + "from accelerate import Accelerator\n" + ours + "HfArgumentParser((Ours,))\na = Accelerator()\n"}, nil, ""},
		{"a trainer of its own reads them", "x.py " + hf, []string{"from transformers import HfArgumentParser\n" + ours + "class MyTrainer:\n    pass\nHfArgumentParser((Ours,))\nMyTrainer(args)\n"}, nil, ""},

		{"Accelerate with a configuration of its own", "train.py --config c.yaml", []string{"from accelerate import Accelerator\naccelerator = Accelerator()\n"},
			map[string]string{"ACCELERATE_MIXED_PRECISION": "no"}, "accelerate"},
		{"the same without its launcher", "train.py --config c.yaml", []string{"from accelerate import Accelerator\naccelerator = Accelerator()\n"}, nil, "accelerate-code"},
		{"a Trainer that asks an Accelerator", "train.py --batch_size 4", []string{"from accelerate import Accelerator\nfrom transformers import Trainer, TrainingArguments\nAccelerator().process_index\n"}, nil, ""},
		{"a diffusion trainer of its own", "train.py --pretrained_model_name_or_path m --train_batch_size 4", []string{"import diffusers\nfrom lib import train_util\n"}, nil, ""},
		{"Lightning's Fabric", "pretrain.py --devices 4", []string{"import lightning as L\nfrom lightning.fabric.strategies import FSDPStrategy\n"}, nil, ""},

		{"LLaMA-Factory's old name", "src/train_bash.py --stage sft --finetuning_type lora", []string{"from llmtuner import run_exp\nrun_exp()\n"}, nil, "llama-factory"},
		{"ms-swift 3", "swift/cli/sft.py --model Qwen/Qwen2.5-7B --dataset d", nil, nil, "ms-swift"},
		{"ms-swift 2", "swift/cli/sft.py --model_id_or_path qwen/Qwen-7B --dataset d", nil, nil, "ms-swift-2"},
		{"ms-swift 2, a model by its type", "swift/cli/sft.py --model_type qwen-7b --dataset d", nil, nil, "ms-swift-2"},
		{"another script with such an argument", "run.py --model_type bert", []string{"import torch\n"}, nil, ""},
		{"Composer without llm-foundry", "main.py conf.yaml", []string{"from composer import Trainer\ncfg = om.from_cli(args)\ncfg.global_train_batch_size\nTrainer(precision=cfg.precision, device_train_microbatch_size=cfg.m)\n"}, nil, "composer-yaml"},
		{"detectron2", "train_net.py --config-file c.yaml --num-gpus 8", []string{"from detectron2.engine import default_argument_parser, launch\n"}, nil, "detectron2"},
		{"detectron2, a configuration in Python", "train_net.py --config-file c.py", []string{"from detectron2.engine import default_argument_parser\nfrom detectron2.config import LazyConfig\n"}, nil, ""},
		{"vLLM's server", "vllm serve m --max-model-len 8192", nil, nil, "vllm"},
		{"vLLM's benchmark", "vllm bench serve --model m", nil, nil, ""},
		{"nanoGPT with its configurator inside", "train.py c.py --batch_size=15", []string{"import sys\nbatch_size = 12\ngradient_accumulation_steps = 5\nfor arg in sys.argv[1:]:\n    key, val = arg.split('=')\n    globals()[key] = val\nfor m in range(gradient_accumulation_steps): pass\n"}, nil, "nanogpt-ranks"},
		{"nanoGPT without its configurator", "train.py", []string{"batch_size = 12\ngradient_accumulation_steps = 5\n# exec(open('configurator.py').read())\nfor m in range(gradient_accumulation_steps): pass\n"}, nil, ""},
		{"nanoGPT before it divided", "train.py", []string{"batch_size = 12\ngradient_accumulation_steps = 5\nexec(open('configurator.py').read())\nfor m in range(gradient_accumulation_steps): pass\n"}, nil, "nanogpt-ranks"},
	}
	all, err := recipes.Embedded()
	testenv.Check(t, err)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cmd := recipes.Command{Argv: strings.Fields(test.argv), Env: test.env, Files: map[string][]byte{}}
			for i, text := range test.sources {
				if i == 0 {
					cmd.Script = []byte(text)
				} else {
					cmd.Modules = append(cmd.Modules, format.Source{Path: "pkg/module.py", Text: []byte(text)})
				}
			}
			if len(test.sources) > 0 {
				cmd.Code = detect.CodeOf(t, test.sources...)
			}
			r, evidence, found := detect.Detect(cmd, all)
			if r.Name != test.want || found != (test.want != "") {
				t.Errorf("found %q by %q, want %q", r.Name, evidence, test.want)
			}
		})
	}
}

// Without an interpreter the imports and the command's words name the framework.
func TestDetectWithoutPython(t *testing.T) {
	all, err := recipes.Embedded()
	testenv.Check(t, err)
	const argv = "train.py --output_dir out --per_device_train_batch_size 8"
	for source, want := range map[string]string{
		"from transformers import HfArgumentParser, TrainingArguments\n":             "hf-trainer",
		"from transformers import HfArgumentParser\nfrom trl import SFTConfig\n":     "trl",
		"from trl import TrlParser, SFTConfig\n":                                     "trl",
		"from transformers import TrainingArguments\nTrainingArguments(bf16=True)\n": "", // a call, which no interpreter has read
	} {
		cmd := recipes.Command{Argv: strings.Fields(argv), Script: []byte(source)}
		if r, evidence, _ := detect.Detect(cmd, all); r.Name != want {
			t.Errorf("%q: %q by %q, want %q", source, r.Name, evidence, want)
		}
		if cmd.Code.Parser() != nil {
			t.Errorf("%q: a parser is known", source)
		}
	}
	if j, joins := detect.Joins([]format.Source{{Path: "train.py", Text: []byte("import lightning\n")}}, nil); !joins || j.By != "train.py imports lightning" {
		t.Errorf("%+v, %v", j, joins)
	}
}
