package job

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/strategy"
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
	if err != nil {
		t.Fatal(err)
	}
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
