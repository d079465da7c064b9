package job

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/recipes/script"
	"github.com/gpurun/gpurun/strategy"
)

// ownScript is a job whose settings are its own, with its interpreter.
func ownScript(t *testing.T, files map[string]string, args ...string) (string, *Prepared) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skipf("this machine has no Python: %v", err)
	}
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		put(t, path, text)
	}
	m := machine(dir, "PYTHON_EXEC="+python)
	p, err := prepared(t, dir, m, args...)
	if err != nil {
		t.Fatal(err)
	}
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

// What is certain of a script's own settings is its plan, changes the command as any
// recipe's, and has to be confirmed by the process.
func TestOwnScript(t *testing.T) {
	_, p := ownScript(t, map[string]string{"train.py": ownLoop, "net.py": ownNet}, "train.py", "--batch-size", "16")
	want := strategy.Plan{strategy.MicroBatchSize: "16", strategy.GradientAccumulationSteps: "2", strategy.ActivationCheckpointing: "none"}
	if diff := cmp.Diff(want, p.Plan()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	knobs := p.StrategyJob().Knobs
	for k := range want {
		if !knobs[k].Confirm || knobs[k].Absent != "" {
			t.Errorf("%s: %+v", k, knobs[k])
		}
	}
	if p.RecipeName() != script.RecipeName {
		t.Errorf("recipe %s", p.RecipeName())
	}
	c, err := p.Apply(p.Plan().With(strategy.Plan{strategy.MicroBatchSize: "8", strategy.GradientAccumulationSteps: "4", strategy.ActivationCheckpointing: "full"}), "", "/run/attempt-1")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(c.Argv, " "); got != "train.py --batch-size 8 --accum 4 --remat-checkpoint" {
		t.Errorf("command %s", got)
	}
	if absent := knobs[strategy.DataloaderWorkers].Absent; !strings.Contains(absent, "number of loader workers not recognised") || !strings.Contains(absent, "train.py and 1 module") {
		t.Errorf("workers: %s", absent)
	}
}

// The user's own entries need no confirmation, and are stronger.
func TestUsersEntriesOverride(t *testing.T) {
	_, p := ownScript(t, map[string]string{"train.py": ownLoop, "net.py": ownNet,
		"train.toml": "[job]\nscript = \"train.py\"\n[knobs]\nmicro_batch_size = { arg = \"--batch-size\", default = 4 }\n"}, "train.toml")
	knobs := p.StrategyJob().Knobs
	if p.Plan()[strategy.MicroBatchSize] != "4" || knobs[strategy.MicroBatchSize].Confirm || !knobs[strategy.GradientAccumulationSteps].Confirm {
		t.Errorf("%v, %+v", p.Plan(), knobs)
	}
}

// A setting in a file that is not there, or that holds no number, is not certain; the
// job is not refused for it.
func TestAFileThatDoesNotHoldTheSetting(t *testing.T) {
	script := strings.Replace(ownLoop, "net = Net", "import yaml\ncfg = yaml.safe_load(open(args.config))\nnet = Net", 1)
	script = strings.Replace(script, "batch_size=args.batch_size", "batch_size=cfg['train']['batch_size']", 1)
	for text, want := range map[string]string{"": "there is no", "train:\n  batch_size: many\n": "not a whole number", "train:\n  batch_size: 6\n": ""} {
		files := map[string]string{"train.py": script, "net.py": ownNet}
		if text != "" {
			files["conf.yaml"] = text
		}
		_, p := ownScript(t, files, "train.py", "--config", "conf.yaml")
		got := p.StrategyJob().Knobs[strategy.MicroBatchSize].Absent
		if want == "" && (got != "" || p.Plan()[strategy.MicroBatchSize] != "6") || want != "" && got == "" {
			t.Errorf("%q: %s, %v", text, got, p.Plan())
		}
	}
}

// An interpreter that fails leaves the job unchanged, with one warning.
func TestInterpreterThatFailsIsOneWarning(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "train.py"), ownLoop)
	put(t, filepath.Join(dir, "python3"), "#!/bin/sh\nexit 1\n")
	p, err := prepared(t, dir, machine(dir), "train.py")
	if err != nil {
		t.Fatal(err)
	}
	warnings := strings.Join(p.Warnings, "\n")
	if p.RecipeName() != "none" || strings.Count(warnings, "is not known: ask "+dir+"/python3") != 1 {
		t.Errorf("%s: %s", p.RecipeName(), warnings)
	}
}

// An argument from which the code computes the knob is no entry: it would mean another number.
func TestDraftHasNoEntryForAComputedBatch(t *testing.T) {
	const script = "import argparse, torch\nfrom torch.utils.data import DataLoader\np = argparse.ArgumentParser()\np.add_argument('--batch-size', type=int, default=8)\np.add_argument('--text', default='8')\nargs = p.parse_args()\nfor x in DataLoader(data, batch_size=%s, shuffle=True):\n    model(x).mean().backward()\n    optimizer.step()\n"
	for size, entry := range map[string]bool{"args.batch_size * chunks": false, "args.batch_size": true, "args.text": false} {
		_, p := ownScript(t, map[string]string{"train.py": fmt.Sprintf(script, size)}, "train.py")
		if text, err := p.Draft(); err != nil || strings.Contains(text, "micro_batch_size = {") != entry || !entry && strings.Contains(p.StrategyJob().Knobs[strategy.MicroBatchSize].Absent, "name it in train.toml") {
			t.Errorf("%s: %v\n%s", size, err, text)
		}
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
		"refused":                        {map[string]string{"train.py": ownLoop + "torch.nn.BatchNorm2d(3)\n", "net.py": ownNet}, []string{"train.py"}},
		"a module":                       {map[string]string{"pkg/train.py": strings.Replace(ownLoop, "from net", "from .net", 1), "pkg/net.py": ownNet, "pkg/__init__.py": ""}, []string{"-m", "pkg.train"}},
		"a shell script":                 {map[string]string{"run.sh": "python3 train.py\n", "train.py": ownLoop, "net.py": ownNet}, []string{"sh", "run.sh", "$HOME it's"}},
		"DeepSpeed's launcher, a module": {map[string]string{"pkg/train.py": strings.Replace(ownLoop, "from net", "from .net", 1), "pkg/net.py": ownNet, "pkg/__init__.py": ""}, []string{"deepspeed", "--num_gpus=2", "--module", "pkg.train", "--batch-size", "4"}},
		"nothing":                        {map[string]string{"train.py": "import os\n"}, []string{"train.py"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir, p := ownScript(t, test.files, test.args...)
			text, err := p.Draft()
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, "train.toml")
			if err := WriteNew(file, text); err != nil {
				t.Fatal(err)
			}
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
			if _, err := again.Draft(); err == nil {
				t.Error("a train.toml is drafted for a train.toml")
			}
		})
	}
}

// A flag of torchrun before another command has no place in a train.toml: init refuses it and names the key.
func TestDraftRefusesTorchrunFlagsBeforeOtherCommands(t *testing.T) {
	_, p := ownScript(t, map[string]string{"train.py": ownLoop, "net.py": ownNet}, "--nproc-per-node", "2", "python3", "train.py")
	if text, err := p.Draft(); err == nil || !strings.Contains(errext.Hint(err), "set launch.nproc_per_node") {
		t.Errorf("%v\n%s", err, text)
	}
}
