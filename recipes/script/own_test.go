package script

import (
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// told runs the program on sources by name, the script first.
func told(t *testing.T, files map[string]string) Facts {
	t.Helper()
	var sources []format.Source
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(name) == ".py" {
			sources = append(sources, format.Source{Path: name, Text: []byte(files[name])})
		}
	}
	slices.SortStableFunc(sources, func(a, b format.Source) int { return first(b) - first(a) })
	return *reading(t, true, sources...).Facts
}

func first(s format.Source) int {
	if s.Path == "train.py" {
		return 1
	}
	return 0
}

// decided returns the analysis of the sources in a txtar-like folder of testdata.
func decided(t *testing.T, files map[string]string, argv ...string) Analysis {
	t.Helper()
	read := func(name string) []byte {
		if text, there := files[name]; there {
			return []byte(text)
		}
		return nil
	}
	return Decide(told(t, files), "train.py", append([]string{"train.py"}, argv...), read)
}

// summary describes a knob briefly: its name, a question mark and the doubt, an exclamation mark
// and the refusal; without a knob, the names that were searched for.
func (s Analysis) summary(k strategy.Knob) string {
	for _, f := range s.Found {
		switch {
		case f.Knob != k:
		case f.Doubt != "":
			return f.target.name() + " ? " + f.Doubt
		case f.Refusal != "":
			return f.Name() + " ! " + f.Refusal
		case f.Derived:
			return "derived"
		default:
			return f.Name()
		}
	}
	return "none: " + s.Missing[k]
}

// head and tail complete the tested part of a script.
const head = `import argparse, os, torch
from torch.utils.data import DataLoader
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", "-b", type=int, default=32, help="samples of one GPU")
parser.add_argument("--accum", type=int, default=2)
parser.add_argument("--workers", type=int, default=4)
args = parser.parse_args()
`

const loop = `
train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, num_workers=args.workers)
for i, batch in enumerate(train_loader):
    loss = model(batch) / args.accum
    loss.backward()
    if (i + 1) % args.accum == 0:
        optimizer.step()
        optimizer.zero_grad()
`

// TestCertain: the certain knobs of a script, by the way in which it reads its settings. Each
// script has both knobs of the batch.
func TestCertain(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  map[strategy.Knob]string
		entry string // of the micro batch, as a recipe reads it: its place
	}{
		"argparse": {map[string]string{"train.py": head + loop},
			map[strategy.Knob]string{strategy.DataloaderWorkers: "--workers"}, "argument --batch-size"},
		"slices, by a name that says nothing": {map[string]string{"train.py": strings.ReplaceAll(head, "--batch-size", "--width") + `
for step, i in enumerate(range(0, len(x), args.width)):
    end = min(i + args.width, len(x))
    loss = criterion(model(x[i:end]), y[i:end]) / args.accum
    loss.backward()
    if (step + 1) % args.accum == 0:
        optimizer.step()
        optimizer.zero_grad()
`}, nil, "argument --width"},
		"samples that are drawn, by a name that says nothing": {map[string]string{"train.py": strings.ReplaceAll(head, "--batch-size", "--width") + `
for step in range(1000):
    for _ in range(args.accum):
        rows = torch.randperm(len(x))[:args.width]
        loss = criterion(model(x[rows]), y[rows]) / args.accum
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
`}, nil, "argument --width"},
		"argparse by a short name": {map[string]string{"train.py": strings.NewReplacer("parser.add_argument(", "add(", "ArgumentParser()", "ArgumentParser()\nadd = parser.add_argument").Replace(head) + loop},
			map[strategy.Knob]string{strategy.DataloaderWorkers: "--workers"}, "argument --batch-size"},
		"through modules and attributes": {map[string]string{
			"train.py":   "from options import get\nfrom loop import Runner\nimport data\ndef main(opt):\n    Runner(opt, data.loaders(opt.batch_size, workers=opt.workers)).run()\nif __name__ == '__main__':\n    main(get())\n",
			"options.py": "import argparse\ndef get():\n    p = argparse.ArgumentParser()\n    p.add_argument('--batch-size', type=int, default=8)\n    p.add_argument('--accum', type=int, default=1)\n    p.add_argument('--workers', type=int, default=2)\n    opt = p.parse_args()\n    return opt\nif __name__ == '__main__':\n    p.add_argument('--other')\n",
			"data.py":    "from torch.utils.data import DataLoader\ndef loaders(batch_size, workers=0):\n    kwargs = dict(batch_size=batch_size, num_workers=workers)\n    return DataLoader(train_set(), shuffle=True, **kwargs)\ndef unused(n):\n    return DataLoader(train_set(), batch_size=n // 2, shuffle=True)\n",
			"loop.py":    "class Runner:\n    def __init__(self, cfg, loader):\n        self.every = cfg.accum\n        self.loader = loader\n    def run(self):\n        for step, x in enumerate(self.loader):\n            loss = self.net(x)\n            loss /= self.every\n            loss.backward()\n            if (step + 1) % self.every != 0:\n                continue\n            self.optimizer.step()\n",
		}, map[strategy.Knob]string{strategy.DataloaderWorkers: "--workers"}, "argument --batch-size"},
		"a flag that is computed, a step in a function": {map[string]string{"train.py": head + `
def update(loss, opt, now):
    loss.backward()
    if now:
        opt.step()
for i, batch in enumerate(DataLoader(train_set, args.batch_size, True)):
    last = True if i % args.accum == 0 else False
    update(model(batch) / args.accum * loss_weight, optimizer, last)
    loss = loss / args.accum
`}, nil, "argument --batch-size"},
		"a scaler that is told when": {map[string]string{"train.py": `from scaler import Native as Scaler
` + head + `
train_loader = DataLoader(train_set, batch_size=args.batch_size)
loss_scaler = Scaler()
for i, batch in enumerate(train_loader):
    loss = model(batch)
    loss /= args.accum
    loss_scaler(loss, optimizer, update_grad=(i + 1) % args.accum == 0)
`, "scaler.py": "class Native:\n    def __call__(self, loss, optimizer, update_grad=True):\n        loss.backward()\n        if update_grad:\n            self.scaler.step(optimizer)\n"}, nil, "argument --batch-size"},
		"an inner loop": {map[string]string{"train.py": head + `
def get_batch():
    ix = torch.randint(len(data) - 1, (args.batch_size,))
    return data[ix]
for it in range(1000):
    for micro in range(args.accum):
        loss = model(get_batch()) / args.accum
        loss.backward()
    optimizer.step()
`}, nil, "argument --batch-size"},
		"a counter": {map[string]string{"train.py": head + `
train_loader = DataLoader(train_set, batch_size=args.batch_size)
n = 0
for batch in train_loader:
    loss = model(batch) / args.accum
    loss.backward()
    n += 1
    if n == args.accum:
        optimizer.step()
        n = 0
`}, nil, "argument --batch-size"},
		"Accelerate": {map[string]string{"train.py": head + `
from accelerate import Accelerator
accelerator = Accelerator(gradient_accumulation_steps=args.accum)
train_loader = DataLoader(train_set, batch_size=args.batch_size)
for batch in train_loader:
    with accelerator.accumulate(model):
        accelerator.backward(model(batch))
        optimizer.step()
`}, nil, "argument --batch-size"},
		"Lightning": {map[string]string{"train.py": head + `
import pytorch_lightning as pl
class Net(pl.LightningModule):
    def __init__(self, hparams):
        super().__init__()
        self.hp = hparams
    def train_dataloader(self):
        return DataLoader(self.data, batch_size=self.hp.batch_size, num_workers=self.hp.workers)
    def val_dataloader(self):
        return DataLoader(self.data, batch_size=1)
trainer = pl.Trainer(accumulate_grad_batches=args.accum)
trainer.fit(Net(args))
`}, map[strategy.Knob]string{strategy.DataloaderWorkers: "--workers"}, "argument --batch-size"},
		"batch samplers and GPUs of one process": {map[string]string{"train.py": head + `
n_gpu = torch.cuda.device_count()
args.train_batch = args.batch_size * max(1, n_gpu)
sampler = torch.utils.data.BatchSampler(RandomSampler(train_set), args.train_batch, drop_last=True)
train_loader = DataLoader(train_set, batch_sampler=sampler)
for i, batch in enumerate(train_loader):
    loss = model(batch) / args.accum
    loss.backward()
    if (i + 1) % args.accum == 0:
        optimizer.step()
`}, nil, "argument --batch-size"},
		"dataclass": {map[string]string{"train.py": `import torch
from dataclasses import dataclass, field
from transformers import HfArgumentParser
@dataclass
class Args:
    batch_size: int = field(default=8, metadata={"help": "per device"})
    accum: int = 4
    workers: int = 2
args, = HfArgumentParser(Args).parse_args_into_dataclasses()
` + loop}, nil, "argument --batch_size"},
		"tyro": {map[string]string{"train.py": `import torch, tyro
from dataclasses import dataclass
@dataclass
class Args:
    batch_size: int = 8
    accum: int = 4
    workers: int = 2
args = tyro.cli(Args)
` + loop}, nil, "argument --batch-size"},
		"pyrallis": {map[string]string{"train.py": `import torch, pyrallis
from dataclasses import dataclass
@dataclass
class Loop:
    batch_size: int = 8
    accum: int = 4
@dataclass
class Config:
    loop: Loop
    workers: int = 2
@pyrallis.wrap()
def main(cfg: Config):
    for i, batch in enumerate(DataLoader(train_set, batch_size=cfg.loop.batch_size)):
        loss = model(batch) / cfg.loop.accum
        loss.backward()
        if i % cfg.loop.accum == 0:
            optimizer.step()
main()
`}, map[strategy.Knob]string{strategy.GradientAccumulationSteps: "--loop.accum"}, "argument --loop.batch_size"},
		"click": {map[string]string{"train.py": `import click, torch
@click.command()
@click.option("--batch-size", "-b", default=16, help="samples")
@click.option("--accum", "steps", type=int, default=1)
def main(batch_size, steps):
    for i, batch in enumerate(DataLoader(train_set, batch_size=batch_size)):
        loss = model(batch) / steps
        loss.backward()
        if i % steps == 0:
            optimizer.step()
`}, nil, "argument --batch-size"},
		"typer": {map[string]string{"train.py": `import typer, torch
def main(data: str, batch_size: int = 16, accum: int = typer.Option(2, "--accumulate")):
    for i, batch in enumerate(DataLoader(train_set, batch_size=batch_size)):
        loss = model(batch) / accum
        loss.backward()
        if i % accum == 0:
            optimizer.step()
typer.run(main)
`}, map[strategy.Knob]string{strategy.GradientAccumulationSteps: "--accumulate"}, "argument --batch-size"},
		"fire": {map[string]string{"train.py": `import fire, torch
def main(batch_size=16, accum=2):
    for i, batch in enumerate(DataLoader(train_set, batch_size=batch_size)):
        loss = model(batch) / accum
        loss.backward()
        if i % accum == 0:
            optimizer.step()
fire.Fire(main)
`}, nil, "argument --batch_size"},
		"absl": {map[string]string{"train.py": `import torch
from absl import app, flags
FLAGS = flags.FLAGS
flags.DEFINE_integer("batch_size", 16, "samples")
ACCUM = flags.DEFINE_integer("accum", 2, "passes")
def main(_):
    for i, batch in enumerate(DataLoader(train_set, batch_size=FLAGS.batch_size)):
        loss = model(batch) / ACCUM.value
        loss.backward()
        if i % ACCUM.value == 0:
            optimizer.step()
app.run(main)
`}, nil, "argument --batch_size"},
		"hydra": {map[string]string{"train.py": `import hydra, torch
@hydra.main(config_path="conf", config_name="main")
def main(cfg):
    for i, batch in enumerate(DataLoader(train_set, batch_size=cfg.train.batch_size)):
        loss = model(batch) / cfg.train.accum
        loss.backward()
        if i % cfg.train.accum == 0:
            optimizer.step()
main()
`, "conf/main.yaml": "defaults:\n  - train: small\nseed: 1\n", "conf/train/small.yaml": "batch_size: 8\naccum: 2\n"},
			map[strategy.Knob]string{strategy.GradientAccumulationSteps: "train.accum"}, "override train.batch_size"},
		"a file that an argument names": {map[string]string{"train.py": `import argparse, torch, yaml
p = argparse.ArgumentParser()
p.add_argument("--config", default="conf.yaml")
args = p.parse_args()
with open(args.config) as f:
    cfg = yaml.safe_load(f)
for i, batch in enumerate(DataLoader(train_set, batch_size=cfg["train"]["batch_size"])):
    loss = model(batch) / cfg["train"].get("accum", 1)
    loss.backward()
    if i % cfg["train"].get("accum", 1) == 0:
        optimizer.step()
`}, map[strategy.Knob]string{strategy.GradientAccumulationSteps: "train.accum in the file of --config"}, "train.batch_size"},
		"from a total in tokens": {map[string]string{"train.py": head + `
parser.add_argument("--tokens", type=int, default=65536)
parser.add_argument("--seq-len", type=int, default=1024)
world = int(os.environ.get("WORLD_SIZE", 1))
grad_steps = args.tokens // (args.batch_size * args.seq_len * world)
train_loader = DataLoader(train_set, batch_size=args.batch_size)
for step in range(100):
    for micro in range(grad_steps):
        loss = model(next(train_loader))
        loss = loss / grad_steps
        loss.backward()
    optimizer.step()
`}, map[strategy.Knob]string{strategy.GradientAccumulationSteps: "derived", strategy.SequenceLength: "--seq-len"}, "argument --batch-size"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := decided(t, test.files)
			want := map[strategy.Knob]string{strategy.GradientAccumulationSteps: "--accum"}
			maps.Copy(want, test.want)
			for k, w := range want {
				if got := s.summary(k); got != w {
					t.Errorf("%s is %s, want %s", k, got, w)
				}
			}
			r := s.Recipe(func(format.Recipe) string { return "" })
			micro := r.Knobs[strategy.MicroBatchSize]
			if len(micro.Places) != 1 || !strings.Contains(micro.Places[0].String(), test.entry) || !micro.Confirm || micro.Absent != "" || len(micro.Unless) > 0 {
				t.Errorf("micro batch %+v: %s, want %s", micro, s.summary(strategy.MicroBatchSize), test.entry)
			}
		})
	}
}

// TestSettingsThatAreNotKnobs: settings that look like a knob but are not one, or must not be
// changed, and why.
func TestSettingsThatAreNotKnobs(t *testing.T) {
	const micro, accumulation = strategy.MicroBatchSize, strategy.GradientAccumulationSteps
	with := func(old, replacement string) string {
		text := strings.Replace(head+loop, old, replacement, 1)
		if text == head+loop {
			panic("no " + old)
		}
		return text
	}
	for name, test := range map[string]struct {
		script string
		knob   strategy.Knob
		want   string
	}{
		"a total by its name":         {strings.NewReplacer(`"--batch-size", "-b"`, `"--total-batch-size"`, "args.batch_size", "args.total_batch_size").Replace(head + loop), micro, "--total-batch-size ? --total-batch-size counts the samples of all GPUs, by its name"},
		"a total by its description":  {with("samples of one GPU", "samples of all GPUs together"), micro, "--batch-size ? --batch-size counts the samples of all GPUs, by its description (\"all GPUs\")"},
		"divided by the ranks":        {with("batch_size=args.batch_size", "batch_size=args.batch_size // world_size"), micro, "--batch-size ? the batch size of DataLoader (train.py:9): it is computed from --batch-size: --batch-size // world_size"},
		"one of several factors":      {with("batch_size=args.batch_size", "batch_size=args.batch_size * (2 if big else 3)"), micro, "--batch-size ? the batch size of DataLoader (train.py:9): it is computed from --batch-size: --batch-size * (2 or 3)"},
		"divided somewhere before":    {with("train_loader", "if distributed:\n    args.batch_size = int(args.batch_size / ngpus)\ntrain_loader"), micro, "--batch-size ? the batch size of DataLoader"},
		"divided under a short name":  {strings.ReplaceAll(with("train_loader", "args.batch_size //= ngpus\ntrain_loader"), "args", "a"), micro, "--batch-size ? the batch size of DataLoader"},
		"divided by setattr":          {with("train_loader", "setattr(args, 'batch_size', args.batch_size // ngpus)\ntrain_loader"), micro, "--batch-size ? the batch size of DataLoader"},
		"divided in its dict":         {strings.Replace(with("train_loader", "c = vars(args)\nc['batch_size'] //= ngpus\ntrain_loader"), "batch_size=args.batch_size", "batch_size=c['batch_size']", 1), micro, "--batch-size ? the batch size of DataLoader"},
		"divided by the accumulation": {with("batch_size=args.batch_size", "batch_size=args.batch_size // args.accum"), accumulation, "--accum ? the batch size is divided by --accum"},
		"a batch that is divided":     {with("batch_size=args.batch_size", "batch_size=args.batch_size // args.accum"), micro, "--batch-size ? "},
		"no type":                     {with(`type=int, default=32`, `default="32"`), micro, "--batch-size ? --batch-size has not the type int"},
		"several values":              {with(`type=int, default=32`, `type=int, nargs="+"`), micro, "--batch-size ? --batch-size is not a single number"},
		"a constant":                  {with("batch_size=args.batch_size", "batch_size=64"), micro, "--batch-size ? the batch size of DataLoader (train.py:9): it is the constant 64"},
		"two loaders for training":    {with("for i,", "parser.add_argument('--mu-batch', type=int, default=2)\nunlabelled_train = DataLoader(extra, batch_size=args.mu_batch, shuffle=True)\nfor i,"), micro, "--batch-size ? --batch-size and --mu-batch both size batches of training"},
		"a flag that nothing reads":   {with("args.accum == 0", "4 == 0"), accumulation, "--accum ? optimizer.step() has the condition (i + 1) % 4 == 0 (train.py:13)"},
		"a step of another optimizer": {head + loop + "    opt_d.step()\n", accumulation, "--accum ? opt_d.step() does not depend on it"},
		"a loss that is not divided":  {with("model(batch) / args.accum", "model(batch)"), accumulation, "--accum ! the loss does not seem to be divided by --accum"},
		"steps that are counted":      {with("    if (i + 1)", "    if i >= args.workers:\n        break\n    if (i + 1)"), accumulation, "--accum ! --workers counts micro batches (train.py:13)"},
		"a schedule by batches":       {head + loop + "    scheduler.step()\n", accumulation, "--accum ! scheduler.step() sets the learning rate for each micro batch (train.py:16)"},
		"a rate by batches":           {with("    if (i + 1)", "    for g in optimizer.param_groups:\n        g['lr'] = 0.1 * min(1, i / 100)\n    if (i + 1)"), accumulation, "--accum ! g['lr'] = 0.1 * min(1, i / 100) sets the learning rate for each micro batch (train.py:14)"},
		"a schedule as long as there are batches": {with("for i,", "total = 3 * len(train_loader)\nscheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=total)\nfor i,"), accumulation,
			"--accum ! the length of CosineAnnealingLR follows from the number of micro batches (train.py:11)"},
		"a schedule as long as there are steps": {with("for i,", "total = 3 * len(train_loader) // args.accum\nscheduler = get_cosine_schedule_with_warmup(optimizer, 100, total)\nfor i,") + "        scheduler.step()\n", accumulation, "--accum"},
		"a schedule by epochs":                  {strings.NewReplacer("\nfor i,", "\nfor epoch in range(3):\n  scheduler.step()\n  for i,", "\n    ", "\n      ").Replace(head + loop), accumulation, "--accum"},
		"a rate by the samples seen":            {with("    if (i + 1)", "    adjust_learning_rate(optimizer, epoch + i / len(train_loader))\n    if (i + 1)"), accumulation, "--accum"},
		"batches that are cut off":              {with("enumerate(train_loader)", "zip(range(args.workers), train_loader)"), accumulation, "--accum ! --workers counts micro batches (train.py:10)"},
		"batches that another counter counts":   {with("    if (i + 1)", "    done += 1\n    if done > args.workers:\n        break\n    if (i + 1)"), accumulation, "--accum ! --workers counts micro batches (train.py:14)"},
		"a multiple that is asserted":           {with("train_loader", "def check():\n    assert args.workers % args.accum == 0\ncheck()\ntrain_loader"), accumulation, "--accum ! the script asserts that another number is a multiple of it"},
		"BatchNorm":                             {with("train_loader", "model = torch.nn.Sequential(torch.nn.BatchNorm2d(3))\ntrain_loader"), micro, "--batch-size ! the code has BatchNorm (train.py:9)"},
		"a model that may have some":            {with("train_loader", "import torchvision\nmodel = torchvision.models.resnet50()\ntrain_loader"), micro, "--batch-size ! the model of torchvision.models.resnet50"},
		"pairs of a batch":                      {with("train_loader", "model = SupConLoss()\ntrain_loader"), micro, "--batch-size ! the code compares the samples"},
		"labels that are an arange":             {with("    loss.backward", "    labels = torch.arange(len(batch))\n    loss = F.cross_entropy(loss, labels)\n    loss.backward"), micro, "--batch-size ! the code compares the samples"},
		"a rate that follows":                   {with("train_loader", "lr = 1e-4 * args.batch_size / 256\ntrain_loader"), micro, "--batch-size ! the learning rate is computed from it (train.py:9)"},
		"a rate that follows the step":          {with("train_loader", "lr = 1e-4 * args.batch_size * args.accum / 256\ntrain_loader"), micro, "--batch-size"},
		"batches that Accelerate cuts":          {with("train_loader", "from accelerate import Accelerator\nacc = Accelerator(split_batches=True)\ntrain_loader"), micro, "--batch-size ? Accelerate splits"},
		"Accelerate that does not":              {head + "from accelerate import Accelerator\nacc = Accelerator(gradient_accumulation_steps=args.accum)\nfor b in DataLoader(train_set, args.batch_size):\n    acc.backward(model(b))\n    optimizer.step()\n", accumulation, "--accum ? nothing calls accelerator.accumulate()"},
		"a parser of another program":           {"if False:\n    pass\n" + head + loop + "\ndef other():\n    p = argparse.ArgumentParser()\n    p.add_argument('--batch-size', type=str)\n", micro, "--batch-size"},
		"a gate that counts samples":            {head + "for i in range(0, len(X), args.batch_size):\n    loss = model(X[i:i + args.batch_size]) / args.accum\n    loss.backward()\n    if (i + 1) % args.accum == 0:\n        optimizer.step()\n", accumulation, "--accum ! i counts samples and not micro batches (train.py:11), so that the optimizer would make other steps"},
		"a gate that divides them":              {head + "for i in range(0, len(X), args.batch_size):\n    loss = model(X[i:i + args.batch_size]) / args.accum\n    loss.backward()\n    if (i // args.batch_size + 1) % args.accum == 0:\n        optimizer.step()\n", accumulation, "--accum"},
		"none":                                  {"import torch\nfor x in DataLoader(train_set, batch_size=8):\n    model(x).backward()\n    optimizer.step()\n", micro, "none: the batch size of DataLoader (train.py:2): it is the constant 8"},
		"no accumulation":                       {"import torch\nfor x in DataLoader(train_set, batch_size=8):\n    model(x).backward()\n    optimizer.step()\n", accumulation, "none: gradient accumulation not recognised in train.py; optimizer.step() (train.py:4) has no condition that counts batches"},
		"accumulation by a counter":             {"import torch\nseen = 0\nfor x in DataLoader(train_set, batch_size=8):\n    seen += 1\n    (model(x) / steps()).backward()\n    if seen >= steps():\n        optimizer.step()\n", accumulation, "none: gradient accumulation not recognised in train.py; optimizer.step() has the condition seen >= steps() (train.py:6)"},
		"a block of pixels":                     {"import argparse, torch\np = argparse.ArgumentParser()\np.add_argument('--block-size', type=int, default=1)\nargs = p.parse_args()\nprint(args.block_size)\nfor x in DataLoader(train_set, batch_size=8):\n    model(x).backward()\n    optimizer.step()\n", strategy.SequenceLength, "none: sequence length not recognised in train.py"},
		"files of checkpoints":                  {"import argparse, torch\np = argparse.ArgumentParser()\np.add_argument('--save-all-checkpoints', action='store_true')\nargs = p.parse_args()\nif args.save_all_checkpoints:\n    save()\nfor x in DataLoader(train_set, batch_size=8):\n    model(x).backward()\n    optimizer.step()\n", strategy.ActivationCheckpointing, "none: switch for activation checkpointing not recognised in train.py"},
		"a scaler or none":                      {"import torch\nfor x in DataLoader(train_set, batch_size=8):\n    model(x).backward()\n    if scaler is not None:\n        scaler.step(optimizer)\n    else:\n        optimizer.step()\n", accumulation, "none: gradient accumulation not recognised in train.py; scaler.step() (train.py:5) has no condition that counts batches"},
		"accumulation by a constant":            {"import torch\nclass Config:\n    ACCUM = 2\nfor i, x in enumerate(DataLoader(train_set, batch_size=8)):\n    (model(x) / Config.ACCUM).backward()\n    if (i + 1) % Config.ACCUM == 0:\n        optimizer.step()\n", accumulation, "none: gradient accumulation not recognised in train.py; optimizer.step() has the condition (i + 1) % Config.ACCUM == 0 (train.py:6)"},
		"evaluation of its own":                 {with("for i,", "parser.add_argument('--eval-bs', type=int, default=64)\nval_loader = DataLoader(val_set, batch_size=args.eval_bs)\nfor i,"), strategy.EvalBatchSize, "--eval-bs"},
		"evaluation of training's":              {with("for i,", "val_loader = DataLoader(val_set, batch_size=args.batch_size)\nfor i,"), strategy.EvalBatchSize, "none: batch size of the evaluation not recognised in train.py; evaluation takes the batches of training, --batch-size"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := decided(t, map[string]string{"train.py": test.script})
			if got := s.summary(test.knob); !strings.HasPrefix(got, test.want) || !strings.Contains(test.want, " ") && got != test.want {
				t.Errorf("%s is %s, want %s", test.knob, got, test.want)
			}
		})
	}
}

// TestSchedulesInSteps: a schedule as long as there are optimizer steps allows more accumulation, in each
// spelling; one as long as there are batches does not.
func TestSchedulesInSteps(t *testing.T) {
	const refused = "--accum ! the length of "
	for text, want := range map[string]string{
		"total = 3 * len(train_loader) // args.accum\nLambdaLR(optimizer, lambda s: 1 - s / total)":                                                                  "--accum",
		"total = 3 * len(train_loader) // args.accum\nLambdaLR(optimizer, lr_lambda=lambda s, t=total: 1 - s / t)":                                                   "--accum",
		"total = 3 * len(train_loader) // args.accum\ndef rate(s):\n    return 1 - s / total\nLambdaLR(optimizer, rate)":                                             "--accum",
		"LambdaLR(optimizer, lambda s: 1 - s / (3 * len(train_loader) // args.accum))":                                                                               "--accum",
		"n = len(train_loader)\nLambdaLR(optimizer, lambda s: 1 - s / math.ceil(3 * n / args.accum))":                                                                "--accum",
		"total = math.floor(3 * len(train_loader) / args.accum)\nCosineAnnealingLR(optimizer, total)":                                                                "--accum",
		"total = 3 * len(train_loader)\ntotal //= args.accum\nCosineAnnealingLR(optimizer, total)":                                                                   "--accum",
		"total = 3 * len(train_loader) // args.accum\nSequentialLR(optimizer, [LinearLR(optimizer, total_iters=9), CosineAnnealingLR(optimizer, total - 9)], [9])":   "--accum",
		"total = 3 * len(train_loader) // args.accum\none, two = LinearLR(optimizer), CosineAnnealingLR(optimizer, total)\nSequentialLR(optimizer, [one, two], [9])": "--accum",
		"CosineAnnealingLR(optimizer, 3 * 1000 // (args.batch_size * args.accum))":                                                                                   "--accum",
		"total = 3 * len(train_loader)\nLambdaLR(optimizer, lambda s: 1 - s / total)":                                                                                refused + "LambdaLR follows from the number of micro batches (train.py:11)",
		"total = 3 * len(train_loader)\ndef rate(s):\n    return 1 - s / total\nLambdaLR(optimizer, rate)":                                                           refused + "LambdaLR follows from the number of micro batches (train.py:13)",
		"total = 3 * len(train_loader)\nLambdaLR(optimizer, lambda s: 1 - s / total if args.accum else 1)":                                                           refused + "LambdaLR follows from the number of micro batches (train.py:11)",
		"CosineAnnealingLR(optimizer, 3 * 1000 // args.batch_size)":                                                                                                  refused + "CosineAnnealingLR follows from the micro batch (train.py:10)",
		"CosineAnnealingLR(optimizer, 3 * 1000 * args.accum)":                                                                                                        refused + "CosineAnnealingLR follows from it (train.py:10)",
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			script := strings.Replace(head+loop, "for i,", "scheduler = None\nfor i,", 1)
			script = strings.Replace(script, "scheduler = None", text, 1) + "        scheduler.step()\n"
			s := decided(t, map[string]string{"train.py": script})
			if got := s.summary(strategy.GradientAccumulationSteps); !strings.HasPrefix(got, want) || want == "--accum" && got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}

// TestCheckpointing: a switch counts if it reaches code that recomputes activations.
func TestCheckpointing(t *testing.T) {
	const k = strategy.ActivationCheckpointing
	argument := func(words string) string {
		return "import argparse, torch\nfrom torch.utils import checkpoint\np = argparse.ArgumentParser()\np.add_argument('--grad-ckpt', " + words + ")\np.add_argument('--ckpt-dir')\nargs = p.parse_args()\n"
	}
	for name, test := range map[string]struct{ script, want string }{
		"a method of the model": {argument("action='store_true'") + "if args.grad_ckpt:\n    model.gradient_checkpointing_enable()\n", "--grad-ckpt"},
		"inside a model of the script": {argument("action='store_true'") + `
class Net(torch.nn.Module):
    def __init__(self, remat=False):
        self.remat = remat
    def forward(self, x):
        if self.remat and self.training:
            x = checkpoint.checkpoint(self.block, x)
        return x
net = Net(remat=args.grad_ckpt)
`, "--grad-ckpt"},
		"handed to a library": {argument("action='store_true'") + "model = create(use_checkpoint=args.grad_ckpt)\n", "--grad-ckpt"},
		"read by nothing":     {argument("action='store_true'"), "--grad-ckpt ? nothing that recomputes activations"},
		"turned off":          {argument("action='store_true'") + "if not args.grad_ckpt:\n    model.gradient_checkpointing_enable()\n", "--grad-ckpt ? --grad-ckpt turns it off"},
		"a path":              {argument("type=str") + "if args.grad_ckpt:\n    model.gradient_checkpointing_enable()\n", "--grad-ckpt ? --grad-ckpt is not a plain switch"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := decided(t, map[string]string{"train.py": test.script})
			if got := s.summary(k); !strings.HasPrefix(got, test.want) {
				t.Errorf("it is %s, want %s", got, test.want)
			}
			knob := s.Recipe(func(format.Recipe) string { return "" }).Knobs[k]
			if (knob.Absent == "") != !strings.Contains(test.want, "?") {
				t.Errorf("%+v", knob)
			}
		})
	}
}

// TestScriptsThatResumeThemselves: a script that loads what it has saved, under the same name, needs no argument.
func TestScriptsThatResumeThemselves(t *testing.T) {
	script := func(load string) string {
		return head + "from pathlib import Path\nparser.add_argument('--out', default='run')\nparser.add_argument('--eval', action='store_true')\nfolder = Path(args.out)\n" + load +
			"for epoch in range(9):\n    for x in DataLoader(data, batch_size=args.batch_size):\n        model(x).mean().backward()\n        optimizer.step()\n    torch.save({'epoch': epoch, 'optimizer': optimizer.state_dict()}, folder / 'last.pth')\n"
	}
	const loads = "    state = torch.load(folder / 'last.pth')\n    optimizer.load_state_dict(state['optimizer'])\n"
	for name, test := range map[string]struct{ load, want string }{
		"where it is there":       {"if (folder / 'last.pth').is_file():\n" + loads, "{--out|run}/last.pth"},
		"always":                  {"if True:\n" + loads, "{--out|run}/last.pth"},
		"for a flag":              {"if args.eval:\n" + loads, ""},
		"for an unknown reason":   {"if again():\n" + loads, ""},
		"another file":            {"if (folder / 'last.pth').is_file():\n" + strings.ReplaceAll(loads, "last", "first"), ""},
		"a file of a given epoch": {"if True:\n" + strings.ReplaceAll(loads, "'last.pth'", "f'{args.accum}.pth'"), ""},
		"weights alone":           {"if True:\n" + strings.ReplaceAll(loads, "optimizer.load", "model.load"), ""},
	} {
		if r := decided(t, one(script(test.load))).Resume; r.Latest != test.want || r.Args != nil || (r.Doubt == "") != (test.want != "") {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestResume: the files that a script loads and saves show how it resumes.
func TestResume(t *testing.T) {
	script := func(save string) string {
		return `import argparse, os, torch
p = argparse.ArgumentParser()
p.add_argument("--resume", type=str, default="")
p.add_argument("--out", default="runs")
args = p.parse_args()
if args.resume:
    state = torch.load(args.resume, map_location="cpu")
    optimizer.load_state_dict(state["optimizer"])
for epoch in range(10):
` + save
	}
	for name, test := range map[string]struct{ save, latest, doubt string }{
		"a file an epoch":        {"    torch.save({'epoch': epoch, 'model': m, 'optimizer': o}, os.path.join(args.out, f'ckpt_{epoch}.pt'))\n", "{--out|runs}/ckpt_*.pt", ""},
		"a state that is kept":   {"    state = {'epoch': epoch, 'model': m, 'optimizer': o}\n    torch.save(state, '{}/last-{}.pt'.format(args.out, epoch))\n", "", "is saved"},
		"a list of paths":        {"    paths = [args.out + '/step-%d.pt' % epoch]\n    for path in paths:\n        torch.save({'model': m, 'optimizer': o, 'step': 1}, path)\n", "{--out|runs}/step-*.pt", ""},
		"an epoch that is added": {"    state = {'model': m, 'optimizer': o}\n    state['epoch'] = epoch\n    torch.save(state, os.path.join(args.out, 'last.pt'))\n", "{--out|runs}/last.pt", ""},
		"no epoch":               {"    torch.save({'model': m, 'optimizer': o}, os.path.join(args.out, 'last.pt'))\n", "", "neither an epoch nor a step (train.py:10)"},
		"weights alone":          {"    torch.save(m.state_dict(), os.path.join(args.out, 'w.pt'))\n", "", "where the script saves an optimizer's state was not recognised"},
		"an optimizer alone":     {"    torch.save({'epoch': 1, 'optimizer_state_dict': o.state_dict(), 'loss': 2}, os.path.join(args.out, 'o.pt'))\n", "", "--resume was found, but the checkpoint has no weights of the model (train.py:"},
		"the best beside":        {"    torch.save(dict(model=m, optimizer=o, epoch=epoch), os.path.join(args.out, 'last.pth'))\n    torch.save(dict(model=m, optimizer=o, epoch=epoch), os.path.join(args.out, 'best.pth'))\n", "{--out|runs}/last.pth", ""},
		"two places":             {"    torch.save(dict(model=m, optimizer=o, epoch=epoch), os.path.join(args.out, 'a.pth'))\n    torch.save(dict(model=m, optimizer=o, epoch=epoch), os.path.join(args.out, 'b.pth'))\n", "", "several places"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := decided(t, map[string]string{"train.py": script(test.save)}).Resume
			if test.doubt == "is saved" {
				if r.Doubt != "" || !strings.HasSuffix(r.Latest, "*.pt") {
					t.Errorf("%+v", r)
				}
				return
			}
			if test.doubt == "" && (r.Latest != test.latest || r.Doubt != "" || !slices.Equal(r.Args, []string{"--resume", "{latest}"})) || !strings.Contains(r.Doubt, test.doubt) {
				t.Errorf("%+v, want %s", r, test.latest)
			}
		})
	}
	if r := decided(t, map[string]string{"train.py": head + loop}).Resume; !strings.Contains(r.Doubt, "how the script continues from a checkpoint was not recognised in train.py") {
		t.Errorf("%+v", r)
	}
}

// TestResumeThatTheCommandRulesOut: the argument has no effect where another one, which the command has, comes first.
func TestResumeThatTheCommandRulesOut(t *testing.T) {
	const script = "import argparse, torch\np = argparse.ArgumentParser()\np.add_argument('--resume', type=str)\np.add_argument('--weights', type=str)\nargs = p.parse_args()\nif args.weights:\n    model.load_state_dict(torch.load(args.weights))\nelif args.resume:\n" +
		"    state = torch.load(args.resume)\n    optimizer.load_state_dict(state['optimizer'])\nfor epoch in range(9):\n    torch.save({'model': m, 'optimizer': o, 'epoch': epoch}, 'last.pt')\n"
	for argv, want := range map[string]string{"": "", "--weights w.pt": "what it names is not loaded (train.py:9): args.weights is true"} {
		if r := decided(t, one(script), strings.Fields(argv)...).Resume; !strings.Contains(r.Doubt, want) || want == "" && r.Doubt != "" {
			t.Errorf("%s: %+v", argv, r)
		}
	}
}

// TestResumeWithDeepSpeed: its engine saves folders, whatever else the script can save.
func TestResumeWithDeepSpeed(t *testing.T) {
	const script = "import argparse, torch\np = argparse.ArgumentParser()\np.add_argument('--resume', type=str)\np.add_argument('--enable_deepspeed', action='store_true')\nargs = p.parse_args()\nif args.resume:\n" +
		"    state = torch.load(args.resume)\n    optimizer.load_state_dict(state['optimizer'])\nfor epoch in range(9):\n    torch.save({'model': m, 'optimizer': o, 'epoch': epoch}, 'last.pt')\n"
	for argv, want := range map[string]string{"": "", "--enable_deepspeed": "--resume was found, but with --enable_deepspeed the checkpoints may be DeepSpeed's own folders"} {
		if r := decided(t, one(script), strings.Fields(argv)...).Resume; r.Doubt != want {
			t.Errorf("%s: %+v", argv, r)
		}
	}
}

// TestFolders: a folder that must not exist prevents a second start of a script.
func TestFolders(t *testing.T) {
	const argument = "import argparse, os\np = argparse.ArgumentParser()\np.add_argument('--out', default='runs')\nargs = p.parse_args()\n"
	for text, warns := range map[string]bool{
		"os.makedirs(args.out)\n":                                                           true,
		"os.makedirs(args.out, exist_ok=True)\n":                                            false,
		"if not os.path.exists(args.out):\n    os.makedirs(args.out)\n":                     false,
		"if os.path.exists(args.out):\n    load(args.out)\n":                                false,
		"if os.path.isdir(args.out):\n    shutil.rmtree(args.out)\nos.makedirs(args.out)\n": false,
		"os.makedirs(os.path.join(args.out, stamp))\n":                                      false,
		"os.makedirs(os.path.join(args.out, 'samples'))\n":                                  true,
	} {
		if got := (decided(t, map[string]string{"train.py": argument + text})).warned(); got != warns {
			t.Errorf("%q warns: %v", text, got)
		}
	}
}

func (s Analysis) warned() bool { return len(s.Warnings()) > 0 }

// TestBrokenSources: sources that are not Python are omitted, and the others are read.
func TestBrokenSources(t *testing.T) {
	var sources []format.Source
	for _, text := range []string{head + loop, "def (:\n", "x = 1\x00\n", strings.Repeat("(", 4000) + strings.Repeat(")", 4000)} {
		sources = append(sources, format.Source{Path: "train.py", Text: []byte(text)})
	}
	r := reading(t, true, sources...)
	if len(r.Facts.Settings) != 3 || r.Code[0].Failed != "" || r.Code[1].Failed != "SyntaxError" || r.Code[2].Failed == "" {
		t.Errorf("%d settings, %+v", len(r.Facts.Settings), r.Code)
	}
	if _, err := Read([]byte("welcome\nno JSON")); err == nil {
		t.Error("no JSON is read")
	}
}

// If a namespace is read from a file, as in YOLOv5, the accumulation may follow from a total
// without being certain.
func TestDerivedAccumulationIsUncertain(t *testing.T) {
	s := decided(t, map[string]string{"train.py": `import argparse, yaml, torch
from torch.utils.data import DataLoader
p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=16, help="total batch size for all GPUs")
opt = p.parse_args()
if opt.resume:
    opt = argparse.Namespace(**yaml.safe_load(f))
opt.batch_size = opt.total_batch_size
accumulate = max(round(64 / opt.batch_size), 1)
for i, x in enumerate(DataLoader(data, batch_size=opt.batch_size)):
    loss.backward()
    if i % accumulate == 0:
        optimizer.step()
`})
	r := s.Recipe(func(format.Recipe) string { return "" })
	if absent := r.Knobs[strategy.GradientAccumulationSteps].Absent; !strings.Contains(absent, "follows from a total that stays (train.py:") || !strings.Contains(absent, "not certain") {
		t.Errorf("accumulation: %q", absent)
	}
}

// TestProgramRunsOnPython38: Python 3.8 can read the program.
func TestProgramRunsOnPython38(t *testing.T) {
	cmd := exec.Command("python3", "-c", "import ast, sys; ast.parse(sys.stdin.read(), feature_version=(3, 8))")
	cmd.Stdin = strings.NewReader(SourceRequest{Deep: true}.Program())
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skipf("this machine has no Python: %v", err)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// The example's own script is read: its arguments are added under a short name, and it uses the
// last element of a list that is empty at first.
func TestExampleScriptIsRead(t *testing.T) {
	text, err := os.ReadFile("../../examples/quickstart/train.py")
	if err != nil {
		t.Fatal(err)
	}
	s := decided(t, map[string]string{"train.py": string(text)}, "--micro-batch-size", "64")
	for knob, want := range map[strategy.Knob]string{
		strategy.MicroBatchSize: "--micro-batch-size ? ", strategy.GradientAccumulationSteps: "--accumulation ? ", strategy.DataloaderWorkers: "--data-workers",
	} {
		if got := s.summary(knob); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", knob, got, want)
		}
	}
}
