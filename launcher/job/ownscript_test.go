package job

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy"
)

// Scripts made from a framework's keep its imports, and not its arguments: what they
// say themselves counts, in whichever of the job's own files it is.
func TestScriptsDerivedFromAFrameworks(t *testing.T) {
	type want struct {
		recipe string
		plan   strategy.Plan
		absent map[strategy.Knob]string // a part of the reason, empty for none
	}
	for name, test := range map[string]struct {
		files   map[string]string
		command string
		want    want
	}{
		"timm, its parser in a module": {
			map[string]string{
				"train.py":         "from timm.optim import create_optimizer_v2, optimizer_kwargs\nfrom config import args\n",
				"config.py":        "import options.image as o\nargs = o.parser.parse_args()\n",
				"options/image.py": "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--data-dir')\nparser.add_argument('-b', '--batch-size', type=int, default=32)\n",
			}, "train.py --data-dir d",
			want{"timm", strategy.Plan{strategy.MicroBatchSize: "32"}, map[strategy.Knob]string{
				strategy.GradientAccumulationSteps: "no argument --grad-accum-steps", strategy.ActivationCheckpointing: "no argument --grad-checkpointing"}},
		},
		"a fork of Megatron on PYTHONPATH": {
			map[string]string{
				"pretrain.py":                   "from megatron.training import pretrain\npretrain()\n",
				"fork/megatron/__init__.py":     "",
				"fork/megatron/training.py":     "from .arguments import parse_args\n",
				"fork/megatron/arguments.py":    "from megatron.model.config import ModelConfig\ndef parse_args(p):\n    p.add_argument('--num-layers', type=int)\n    p.add_argument('--micro-batch-size', type=int)\n    p.add_argument('--fp16', action='store_true')\n",
				"fork/megatron/model/config.py": "class ModelConfig:\n    use_distributed_optimizer: bool = False\n",
			}, "env PYTHONPATH=fork python3 pretrain.py --num-layers 2 --micro-batch-size 4",
			want{"megatron-lm", strategy.Plan{strategy.MicroBatchSize: "4"}, map[strategy.Knob]string{
				strategy.ActivationCheckpointing: "no argument --recompute-granularity", strategy.Sharding: "", strategy.OffloadOptimizer: "no argument --optimizer-cpu-offload"}},
		},
		"Megatron that is not there to be read": {
			map[string]string{"pretrain.py": "from megatron.training import pretrain\nparser.add_argument('--mine')\n"}, "pretrain.py --num-layers 2 --micro-batch-size 4",
			want{"megatron-lm", nil, map[strategy.Knob]string{strategy.ActivationCheckpointing: ""}},
		},
		"training arguments with other defaults": {
			map[string]string{
				"train.py":     "from transformers import HfArgumentParser, Trainer\nfrom ours.args import Arguments\nHfArgumentParser((Arguments,))\n",
				"ours/args.py": "from transformers import TrainingArguments\nclass Arguments(TrainingArguments):\n    per_device_train_batch_size: int = 2\n",
			}, "train.py --output_dir out",
			want{"hf-trainer", strategy.Plan{strategy.MicroBatchSize: "2"}, nil},
		},
		"another dataclass": {
			map[string]string{"train.py": "from transformers import HfArgumentParser\nclass Arguments:\n    output_dir: str\nHfArgumentParser(Arguments)\n"}, "train.py --output_dir out",
			want{"none", nil, nil},
		},
		"batches of the script's own": {
			map[string]string{
				"train.py": "import deepspeed\nfrom data import loader\nengine, *_ = deepspeed.initialize(args=args, model=model)\n",
				"data.py":  "loader = DataLoader(data, batch_size=8)\n", "ds.json": "{\"train_micro_batch_size_per_gpu\": 8, \"zero_optimization\": {\"stage\": 1}}",
			}, "train.py --deepspeed_config ds.json",
			want{"deepspeed", nil, map[strategy.Knob]string{strategy.MicroBatchSize: "training_data", strategy.Sharding: ""}},
		},
		"a configuration in Hjson": {
			map[string]string{"train.py": "import deepspeed\n", "ds.json": "{\n  train_batch_size: 8\n  # a comment\n}\n"}, "train.py --deepspeed_config ds.json",
			want{"deepspeed", nil, map[strategy.Knob]string{strategy.MicroBatchSize: "ds.json"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			command := test.command
			if !strings.HasPrefix(command, "env ") {
				command = "python3 " + command
			}
			test.files["train.toml"] = "[job]\ncommand = \"" + command + "\"\n[launch]\nnproc_per_node = 2\nhooks = false\n"
			dir, _ := folder(t, test.files)
			p, err := prepared(t, dir, machine(dir), "train.toml")
			if err != nil {
				t.Fatal(err)
			}
			if p.RecipeName() != test.want.recipe {
				t.Fatalf("recipe %s, want %s", p.RecipeName(), test.want.recipe)
			}
			for k, value := range test.want.plan {
				if p.Plan()[k] != value {
					t.Errorf("%s is %q, want %q", k, p.Plan()[k], value)
				}
			}
			for k, reason := range test.want.absent {
				if got := p.StrategyJob().Knobs[k].Absent; reason == "" && got != "" || !strings.Contains(got, reason) {
					t.Errorf("%s: absent %q, want %q", k, got, reason)
				}
			}
		})
	}
}

// A framework's own arguments are read among the packages of the job's interpreter.
func TestArgumentsOfAnInstalledFramework(t *testing.T) {
	dir, _ := folder(t, map[string]string{
		"pretrain.py":                              "from megatron.training import pretrain\npretrain()\n",
		"site/megatron/training/arguments.py":      "from megatron.core.optimizer import OptimizerConfig\np.add_argument('--micro-batch-size', type=int)\np.add_argument('--num-layers', type=int)\np.add_argument('--num-workers', type=int, default=6)\n",
		"site/megatron/core/optimizer/__init__.py": "from .config import OptimizerConfig\n",
		"site/megatron/core/optimizer/config.py":   "class OptimizerConfig:\n    bf16: bool = False\n    fp16: bool = False\n",
	})
	put(t, filepath.Join(dir, "python3"), fmt.Sprintf(parses+"echo '{\"version\": \"3.12.0\", \"path\": [\"%s/site\"], \"packages\": {\"megatron-core\": \"0.9.0\"}}'\n", dir))
	p, err := prepared(t, dir, machine(dir), "pretrain.py", "--num-layers", "2", "--micro-batch-size", "4")
	if err != nil {
		t.Fatal(err)
	}
	knobs := p.StrategyJob().Knobs
	if p.RecipeName() != "megatron-lm" || p.Plan()[strategy.DataloaderWorkers] != "6" || knobs[strategy.Precision].Absent != "" {
		t.Errorf("%s, %v, precision %+v", p.RecipeName(), p.Plan(), knobs[strategy.Precision])
	}
	if got := knobs[strategy.Sharding].Absent; !strings.Contains(got, "no argument --use-distributed-optimizer") {
		t.Errorf("sharding: absent %q", got)
	}
}
