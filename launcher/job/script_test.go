package job

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// ownJob is a job whose settings are its own, with its interpreter.
func ownJob(t *testing.T, files map[string]string, args ...string) (string, *Prepared) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skipf("this machine has no Python: %v", err)
	}
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		testenv.Check(t, os.MkdirAll(filepath.Dir(path), 0o755))
		put(t, path, text)
	}
	m := machine(dir, "PYTHON_EXEC="+python)
	p, err := prepared(t, dir, m, args...)
	testenv.Check(t, err)
	return dir, p
}

const ownLoop = `import argparse, torch
from net import Net
from torch.utils.data import DataLoader
p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=8)
p.add_argument("--accum", type=int, default=2)
p.add_argument("--remat-checkpoint", action="store_true")
p.add_argument("--config", default="conf.yaml")
args = p.parse_args()
net = Net(args.remat_checkpoint)
for i, x in enumerate(DataLoader(train_set, batch_size=args.batch_size)):
    loss = net(x) / args.accum
    loss.backward()
    if (i + 1) % args.accum == 0:
        optimizer.step()
`

const ownNet = `import torch
from torch.utils.checkpoint import checkpoint
class Net(torch.nn.Module):
    def __init__(self, remat):
        self.remat = remat
    def forward(self, x):
        if self.remat:
            return checkpoint(self.block, x)
        return self.block(x)
`

// Names alone are likely: the plan has no value of them. A change that the process has confirmed is written into the
// command, also for an argument that counts the samples of all ranks.
func TestOwnScript(t *testing.T) {
	_, p := ownJob(t, map[string]string{"train.py": ownLoop, "net.py": ownNet}, "train.py", "--batch-size", "16")
	if p.RecipeName() != ownScript || len(p.Plan().With(nil)) > 1 {
		t.Errorf("recipe %s, plan %v", p.RecipeName(), p.Plan())
	}
	want := map[strategy.Knob][]strategy.Likely{
		strategy.MicroBatchSize:            {{Name: "--batch-size", Key: "batch_size", Value: "16"}},
		strategy.GradientAccumulationSteps: {{Name: "--accum", Key: "accum", Value: "2"}},
	}
	if diff := cmp.Diff(want, p.StrategyJob().Likely()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	plan := p.Plan().With(strategy.Plan{strategy.MicroBatchSize: "4", strategy.GradientAccumulationSteps: "4"})
	for times, want := range map[int]string{1: "train.py --batch-size 4 --accum 4", 2: "train.py --batch-size 8 --accum 4"} {
		by := strategy.Arguments{strategy.MicroBatchSize: {Name: "--batch-size", Times: times}, strategy.GradientAccumulationSteps: {Name: "--accum", Times: 1}}
		c, err := p.Apply(plan, by, "", "/run/attempt-1")
		if err != nil || strings.Join(c.Argv, " ") != want {
			t.Errorf("%d: %s, want %s, %v", times, c.Argv, want, err)
		}
	}
}

// Where the code gives a framework's class a computed value, arguments are likely; a literal is the value.
func TestArgumentsBehindACall(t *testing.T) {
	const script = `import fire, transformers
def train(batch: int = 16, bs: int = 4):
    args = transformers.TrainingArguments(per_device_train_batch_size=bs, gradient_accumulation_steps=%s, output_dir="out")
    transformers.Trainer(args=args).train()
fire.Fire(train)
`
	for steps, want := range map[string]strategy.Value{"2": "2", "batch // bs": ""} {
		_, p := ownJob(t, map[string]string{"train.py": strings.Replace(script, "%s", steps, 1)}, "train.py", "--bs", "8")
		likely := p.StrategyJob().Likely()
		if p.RecipeName() != "hf-trainer-code" || len(likely[strategy.MicroBatchSize]) != 2 || p.Plan()[strategy.GradientAccumulationSteps] != want {
			t.Errorf("%s: %s, %v, %v", steps, p.RecipeName(), likely, p.Plan())
		}
	}
}

// A program that is not read has its words as likely settings, and says which counts all ranks.
func TestWordsOfAProgram(t *testing.T) {
	_, p := ownJob(t, nil, "--no-python", "/bin/true", "4", "--batch-size", "8", "--global_batch_size=64")
	if got, want := p.Value(strategy.MicroBatchSize), "likely 8 by --batch-size, or 64 of all ranks by --global_batch_size"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A setting that a process has confirmed is an entry of the drafted file, and another one is a comment.
func TestDraftHasConfirmedSettings(t *testing.T) {
	dir, p := ownJob(t, map[string]string{"train.py": ownLoop, "net.py": ownNet}, "train.py", "--batch-size", "16")
	text, err := p.Draft([]strategy.Attempt{{Observed: strategy.Plan{strategy.MicroBatchSize: "16"}}})
	if err != nil || !strings.Contains(text, "\nmicro_batch_size = {") || !strings.Contains(text, "\n# gradient_accumulation_steps = {") {
		t.Fatalf("%v\n%s", err, text)
	}
	put(t, filepath.Join(dir, "train.toml"), text)
	again, err := prepared(t, dir, machine(dir, "PYTHON_EXEC="+p.Python()), filepath.Join(dir, "train.toml"))
	if err != nil || again.Plan()[strategy.MicroBatchSize] != "16" || again.StrategyJob().Knobs[strategy.GradientAccumulationSteps].Likely == nil {
		t.Errorf("%v: %v", err, again.Plan())
	}
}

// The user's own entries need no confirmation, and are stronger.
func TestUsersEntriesOverride(t *testing.T) {
	_, p := ownJob(t, map[string]string{"train.py": ownLoop, "net.py": ownNet,
		"train.toml": "[job]\nscript = \"train.py\"\n[knobs]\nmicro_batch_size = { arg = \"--batch-size\", default = 4 }\n"}, "train.toml")
	knobs := p.StrategyJob().Knobs
	if p.Plan()[strategy.MicroBatchSize] != "4" || knobs[strategy.MicroBatchSize].Likely != nil || knobs[strategy.GradientAccumulationSteps].Likely == nil {
		t.Errorf("%v, %+v", p.Plan(), knobs)
	}
}

// An interpreter that fails leaves the job unchanged, with one warning.
func TestInterpreterThatFailsIsOneWarning(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "train.py"), ownLoop)
	put(t, filepath.Join(dir, "python3"), "#!/bin/sh\nexit 1\n")
	p, err := prepared(t, dir, machine(dir), "train.py")
	testenv.Check(t, err)
	warnings := strings.Join(p.Warnings, "\n")
	if p.RecipeName() != "none" || strings.Count(warnings, "is not known: ask "+dir+"/python3") != 1 {
		t.Errorf("%s: %s", p.RecipeName(), warnings)
	}
}

// What init writes is read without a problem, and means the same plan under the same policy; a refusal stays.
func TestDraftMeansTheSameJob(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		args  []string
	}{
		"all certain":      {map[string]string{"train.py": ownLoop, "net.py": ownNet}, []string{"train.py", "--batch-size", "16", "it's \"odd\"\t"}},
		"torchrun's flags": {map[string]string{"train.py": ownLoop, "net.py": ownNet}, []string{"--nproc-per-node", "2", "train.py", "a b"}},
		"gpurun's flags": {map[string]string{"train.py": ownLoop, "net.py": ownNet}, []string{"--mode", "ladder", "--numerics=preserve", "--never", "nvme,shard", "--never", "split",
			"--no-in-place", "--max-attempts", "3", "--device-memory", "4GiB", "--run-dir", "x", "--", "torchrun", "--nproc-per-node", "1", "train.py"}},
		"gpurun's flags and torchrun's":  {map[string]string{"train.py": ownLoop, "net.py": ownNet}, []string{"--mode", "off", "--nproc-per-node", "2", "--device-memory", "4GiB", "train.py"}},
		"a module":                       {map[string]string{"pkg/train.py": strings.Replace(ownLoop, "from net", "from .net", 1), "pkg/net.py": ownNet, "pkg/__init__.py": ""}, []string{"-m", "pkg.train"}},
		"a shell script":                 {map[string]string{"run.sh": "python3 train.py\n", "train.py": ownLoop, "net.py": ownNet}, []string{"sh", "run.sh", "$HOME it's"}},
		"DeepSpeed's launcher, a module": {map[string]string{"pkg/train.py": strings.Replace(ownLoop, "from net", "from .net", 1), "pkg/net.py": ownNet, "pkg/__init__.py": ""}, []string{"deepspeed", "--num_gpus=2", "--module", "pkg.train", "--batch-size", "4"}},
		"nothing":                        {map[string]string{"train.py": "import os\n"}, []string{"train.py"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir, p := ownJob(t, test.files, test.args...)
			text, err := p.Draft(nil)
			testenv.Check(t, err)
			file := filepath.Join(dir, "train.toml")
			testenv.Check(t, WriteNew(file, text))
			if err := WriteNew(file, text); err == nil {
				t.Error("it is written over")
			}
			python, _ := exec.LookPath("python3")
			again, err := prepared(t, dir, machine(dir, "PYTHON_EXEC="+python), file)
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			if diff := cmp.Diff(p.Plan(), again.Plan()); diff != "" || again.Ranks != p.Ranks || again.Plain != p.Plain || again.OwnRanks != p.OwnRanks {
				t.Errorf("%s\n%d and %d ranks\n%s", diff, p.Ranks, again.Ranks, text)
			}
			if diff := cmp.Diff(p.Job.Argv, again.Job.Argv) + cmp.Diff(p.Job.Policy, again.Job.Policy); diff != "" || again.Job.DeviceMemory != p.Job.DeviceMemory {
				t.Errorf("%s%s", diff, text)
			}
			for k, r := range p.StrategyJob().Knobs {
				if got := again.StrategyJob().Knobs[k]; (got.Absent == "") != (r.Absent == "") || got.Scope != r.Scope || got.Min != r.Min {
					t.Errorf("%s: %+v, want %+v", k, got, r)
				}
			}
			if _, err := again.Draft(nil); err == nil {
				t.Error("a train.toml is drafted for a train.toml")
			}
		})
	}
}

// A flag of torchrun before another command has no place in a train.toml: init refuses it and names the key.
func TestDraftRefusesTorchrunFlagsBeforeOtherCommands(t *testing.T) {
	_, p := ownJob(t, map[string]string{"train.py": ownLoop, "net.py": ownNet}, "--nproc-per-node", "2", "python3", "train.py")
	if text, err := p.Draft(nil); err == nil || !strings.Contains(errext.Hint(err), "set launch.nproc_per_node") {
		t.Errorf("%v\n%s", err, text)
	}
}

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
			testenv.Check(t, err)
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
	testenv.Check(t, err)
	knobs := p.StrategyJob().Knobs
	if p.RecipeName() != "megatron-lm" || p.Plan()[strategy.DataloaderWorkers] != "6" || knobs[strategy.Precision].Absent != "" {
		t.Errorf("%s, %v, precision %+v", p.RecipeName(), p.Plan(), knobs[strategy.Precision])
	}
	if got := knobs[strategy.Sharding].Absent; !strings.Contains(got, "no argument --use-distributed-optimizer") {
		t.Errorf("sharding: absent %q", got)
	}
}

func TestInstalledPackagesAreNotRead(t *testing.T) {
	const loop = "from lib import helper\n" + "import argparse, torch\nfrom torch.utils.data import DataLoader\np = argparse.ArgumentParser()\np.add_argument(\"--batch-size\", type=int, default=8)\nargs = p.parse_args()\nfor x in DataLoader(data, batch_size=args.batch_size):\n    net(x).backward()\n    optimizer.step()\n"
	dir, p := ownJob(t, map[string]string{
		"train.py": loop, "venv/lib/python3.11/site-packages/lib.py": "import torch\n", "venv/lib/python3.11/site-packages/tool/__main__.py": loop,
		"train.toml": "[job]\nscript = \"train.py\"\nenv = { PYTHONPATH = \"venv/lib/python3.11/site-packages\" }\n",
		"tool.toml":  "[job]\nmodule = \"tool\"\nenv = { PYTHONPATH = \"venv/lib/python3.11/site-packages\" }\n",
	}, "train.toml")
	if n := len(p.sources()); n != 1 || p.StrategyJob().Knobs[strategy.MicroBatchSize].Likely == nil {
		t.Errorf("%d sources, %v", n, p.Plan())
	}
	tool, err := prepared(t, dir, machine(dir, "PYTHON_EXEC="+p.Python()), filepath.Join(dir, "tool.toml"))
	testenv.Check(t, err)
	if tool.source == nil || tool.RecipeName() != "none" {
		t.Errorf("recipe %s", tool.RecipeName())
	}
}

// A source that takes long to read keeps no job from starting: what it says is unknown.
func TestReadingHasABudget(t *testing.T) {
	defer func(budget time.Duration) { readingBudget = budget }(readingBudget)
	readingBudget = time.Millisecond
	long := ownLoop + strings.Repeat("x = [len(y) * 2 for y in range(args.accum)]\n", 20000)
	_, p := ownJob(t, map[string]string{"train.py": long, "net.py": ownNet}, "train.py")
	if w := strings.Join(p.Warnings, "\n"); !strings.Contains(w, "what the code of the job calls is not known") || !strings.Contains(w, "take longer than 0.001 s to read") {
		t.Errorf("%q", w)
	}
	if len(p.Plan()) > 1 || p.RecipeName() != "none" {
		t.Errorf("%s, %v", p.RecipeName(), p.Plan())
	}
}

// The program that reads a source is no word of a command line, which every user of the
// machine sees.
func TestNotificationReaderIsNoArgument(t *testing.T) {
	dir := t.TempDir()
	seen := filepath.Join(dir, "seen")
	put(t, filepath.Join(dir, "python3"), "#!/bin/sh\nprintf '%s\\n' \"$*\" >>"+seen+"\nexec python3 \"$@\"\n")
	testenv.Check(t, os.Chmod(filepath.Join(dir, "python3"), 0o755))
	put(t, filepath.Join(dir, "train.py"), ownLoop)
	put(t, filepath.Join(dir, "net.py"), ownNet)
	p, err := prepared(t, dir, machine(dir), "train.py")
	testenv.Check(t, err)
	words, err := os.ReadFile(seen)
	if err != nil || p.RecipeName() == "none" {
		t.Fatalf("%v, recipe %s", err, p.RecipeName())
	}
	for line := range strings.Lines(string(words)) {
		if strings.Contains(line, "-S") && len(line) > 200 {
			t.Errorf("the command is %.300q", line)
		}
	}
	if strings.Contains(string(words), "class Surface") {
		t.Error("the reader's source is a word of a command")
	}
}
