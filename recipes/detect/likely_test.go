package detect

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// likelyOf lists the likely settings of a script with some files, by knob: "--bs=8", "--a or --b".
func likelyOf(t testing.TB, argv string, files map[string]string, scripts ...string) map[strategy.Knob]string {
	t.Helper()
	cmd := format.Command{Argv: append([]string{"train.py"}, strings.Fields(argv)...), Script: []byte(scripts[0]), Code: codeOf(t, scripts...)}
	read := func(path string) []byte {
		if text, there := files[path]; there {
			return []byte(text)
		}
		return nil
	}
	found := map[strategy.Knob]string{}
	for k, knob := range (Job{Command: cmd, Read: read, Folder: "."}).Likely() {
		var names []string
		for _, one := range knob.Likely {
			names = append(names, one.Name)
		}
		found[k] = strings.Join(names, " or ")
	}
	return found
}

const (
	micro = strategy.MicroBatchSize
	accum = strategy.GradientAccumulationSteps
)

// The arguments of each library whose names suggest a knob are likely ones, whatever the code does with them.
func TestLikelyArguments(t *testing.T) {
	const argparse = "import argparse\np = argparse.ArgumentParser()\n"
	for name, test := range map[string]struct {
		argv    string
		files   map[string]string
		scripts []string
		want    map[strategy.Knob]string
	}{
		"argparse": {scripts: []string{argparse + "p.add_argument('-b', '--batch-size', type=int, default=8)\np.add_argument('--grad-accum', type=int, default=1)\n"},
			want: map[strategy.Knob]string{micro: "--batch-size", accum: "--grad-accum"}},
		"a parser in a module": {scripts: []string{"from opts import parse\n", argparse + "p.add_argument('--bs', type=int, default=8)\n"}, want: map[strategy.Knob]string{micro: "--bs"}},
		"in order of the names": {scripts: []string{argparse + "p.add_argument('--total-batch-size', type=int)\np.add_argument('--batch', type=int)\np.add_argument('--micro-batch-size', type=int)\n"},
			want: map[strategy.Knob]string{micro: "--micro-batch-size or --batch or --total-batch-size"}},
		"evaluation and workers": {scripts: []string{argparse + "p.add_argument('--val-batch-size', type=int)\np.add_argument('--num_workers', type=int, default=4)\np.add_argument('--seq-len', type=int)\n"},
			want: map[strategy.Knob]string{strategy.EvalBatchSize: "--val-batch-size", strategy.DataloaderWorkers: "--num_workers", strategy.SequenceLength: "--seq-len"}},
		"switches":             {scripts: []string{argparse + "p.add_argument('--gradient-checkpointing', action='store_true')\np.add_argument('--amp', action='store_true')\n"}, want: map[strategy.Knob]string{strategy.ActivationCheckpointing: "--gradient-checkpointing", strategy.Precision: "--amp"}},
		"texts, lists, counts": {scripts: []string{argparse + "p.add_argument('--batch-size')\np.add_argument('--bs', type=int, nargs='+')\np.add_argument('-b', action='count')\n"}, want: map[strategy.Knob]string{}},
		"other names":          {scripts: []string{argparse + "p.add_argument('--batch-norm', type=int)\np.add_argument('--log-batches', type=int)\np.add_argument('--accuracy', type=int)\n"}, want: map[strategy.Knob]string{}},
		"click":                {scripts: []string{"import click\n@click.command()\n@click.option('--batch-size', default=8)\ndef main(batch_size): pass\n"}, want: map[strategy.Knob]string{micro: "--batch-size"}},
		"typer":                {scripts: []string{"import typer\napp = typer.Typer()\n@app.command()\ndef main(batch_size: int = 8, accum: int = typer.Option(2, '--accum-steps')): pass\napp()\n"}, want: map[strategy.Knob]string{micro: "--batch-size", accum: "--accum-steps"}},
		"fire":                 {scripts: []string{"import fire\ndef train(batch_size=8, lr=.1): pass\ndef other(bs=3): pass\nfire.Fire(train)\n"}, want: map[strategy.Knob]string{micro: "--batch_size"}},
		"absl":                 {scripts: []string{"from absl import flags\nflags.DEFINE_integer('batch_size', 8, 'help')\n"}, want: map[strategy.Knob]string{micro: "--batch_size"}},
		"tyro": {scripts: []string{"import tyro\nfrom dataclasses import dataclass\n@dataclass\nclass Train:\n    batch_size: int = 8\n@dataclass\nclass Config:\n    train: Train\n    accum_steps: int = 1\nc = tyro.cli(Config)\n"},
			want: map[strategy.Knob]string{micro: "--train.batch-size", accum: "--accum-steps"}},
		"HfArgumentParser": {scripts: []string{"from transformers import HfArgumentParser\nfrom dataclasses import dataclass, field\n@dataclass\nclass Args:\n    batch_size: int = field(default=8)\n@dataclass\nclass Other:\n    bs: int = 1\np = HfArgumentParser((Args,))\n"},
			want: map[strategy.Knob]string{micro: "--batch_size"}},
		"a class of a variable": {scripts: []string{"import pyrallis\nfrom dataclasses import dataclass\n@dataclass\nclass Args:\n    batch_size: int = 8\n@pyrallis.wrap()\ndef main(cfg: Args): pass\n"}, want: map[strategy.Knob]string{micro: "--batch_size"}},
		"Tap":                   {scripts: []string{"from tap import Tap\nclass Args(Tap):\n    bs: int = 8\nargs = Args().parse_args()\n"}, want: map[strategy.Knob]string{micro: "--bs"}},
		"a file of the command": {argv: "--config c.yaml", files: map[string]string{"c.yaml": "train:\n  batch_size: 8\nval:\n  batch_size: 2\n"}, scripts: []string{argparse + "p.add_argument('--config')\n"},
			want: map[strategy.Knob]string{micro: "train.batch_size of c.yaml", strategy.EvalBatchSize: "val.batch_size of c.yaml"}},
		"a file by default": {files: map[string]string{"c.json": `{"bs": 8}`}, scripts: []string{argparse + "p.add_argument('--config', default='c.json')\n"}, want: map[strategy.Knob]string{micro: "bs of c.json"}},
		"the first word":    {argv: "c.toml", files: map[string]string{"c.toml": "[train]\naccum = 2\n"}, scripts: []string{"import sys\n"}, want: map[strategy.Knob]string{accum: "train.accum of c.toml"}},
		"Hydra": {argv: "data=big", files: map[string]string{"conf/main.yaml": "defaults:\n  - data: small\n  - _self_\naccumulate_grad_batches: 2\n", "conf/data/big.yaml": "batch_size: 8\n", "conf/data/small.yaml": "bs: 2\n"},
			scripts: []string{"import hydra\n@hydra.main(config_path='conf', config_name='main')\ndef main(cfg): pass\n"}, want: map[strategy.Knob]string{micro: "data.batch_size", accum: "accumulate_grad_batches"}},
		"Hydra, later files override": {argv: "+experiment=e trainer=ddp", files: map[string]string{"conf/main.yaml": "defaults:\n  - _self_\n  - data: small\n  - trainer: cpu\nbatch: 1\n", "conf/data/small.yaml": "bs: 2\n",
			"conf/data/big.yaml": "batch_size: 8\nnum_workers: 2\n", "conf/trainer/ddp.yaml": "defaults:\n  - base\ndevices: 4\n", "conf/trainer/base.yaml": "accumulate_grad_batches: 2\n",
			"conf/experiment/e.yaml": "# @package _global_\ndefaults:\n  - override /data: big\ndata:\n  num_workers: 4\n"},
			scripts: []string{"import hydra\n@hydra.main(config_path='conf', config_name='main')\ndef main(cfg): pass\n"},
			want:    map[strategy.Knob]string{micro: "batch or data.batch_size", accum: "trainer.accumulate_grad_batches", strategy.DataloaderWorkers: "data.num_workers"}},
		"a word overrides a key of a file": {argv: "--base c.yaml data.batch_size=4", files: map[string]string{"c.yaml": "data:\n  batch_size: 12\n"}, scripts: []string{argparse + "p.parse_known_args()\n"},
			want: map[strategy.Knob]string{micro: "data.batch_size"}},
		"names that a parser computes": {argv: "--train.batch-size 8 --update-freq=2 --lr 3 --bs x", scripts: []string{argparse + "for k in names: p.add_argument(f'--{k}')\np.parse_args()\n"},
			want: map[strategy.Knob]string{micro: "--train.batch-size", accum: "--update-freq"}},
		"defaults of names that a parser computes": {scripts: []string{"import argparse\nfrom util import add\ndef parser():\n    defaults = dict(lr=.1, batch_size=4)\n    p = argparse.ArgumentParser()\n    add(p, defaults)\nparser().parse_args()\n",
			"def add(p, d):\n    for k in d: p.add_argument(f'--{k}')\n"}, want: map[strategy.Knob]string{micro: "--batch_size"}},
		"a word that a declared name begins with": {argv: "--batch 8", scripts: []string{argparse + "p.add_argument('--batch-size')\np.parse_args()\n"}, want: map[strategy.Knob]string{}},
		"words that the script does not read":     {argv: "--batch-size 8", scripts: []string{"import torch\n"}, want: map[strategy.Knob]string{}},
		"the parser of a module that is a script besides": {scripts: []string{argparse + "import val\nfrom opts import more\nmore(p)\nval.run()\np.parse_args()\n",
			argparse[:16] + "def run(): pass\ndef parse_opt():\n    p = argparse.ArgumentParser()\n    p.add_argument('--half', action='store_true')\nif __name__ == '__main__':\n    parse_opt()\n    p.add_argument('--batch', type=int)\n",
			argparse[:16] + "def more(p): within(p)\ndef within(p): p.add_argument('--bs', type=int)\ndef preprocessing(p): p.add_argument('--workers', type=int)\n"}, want: map[strategy.Knob]string{micro: "--bs"}},
		"per GPU before all, and threads": {scripts: []string{argparse + "p.add_argument('--batch', type=int)\np.add_argument('--batch-gpu', type=int)\np.add_argument('--nThreads', type=int)\n"},
			want: map[strategy.Knob]string{micro: "--batch-gpu or --batch", strategy.DataloaderWorkers: "--nThreads"}},
		"OmegaConf's words": {argv: "train.batch_size=8", scripts: []string{"from omegaconf import OmegaConf\ncfg = OmegaConf.from_cli()\n"}, want: map[strategy.Knob]string{micro: "train.batch_size"}},
		"no parser":         {scripts: []string{"batch_size = 8\n"}, want: map[strategy.Knob]string{}},
	} {
		if diff := cmp.Diff(test.want, likelyOf(t, test.argv, test.files, test.scripts...)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A program that is not read has the words of its command, and the files that it names.
func TestLikelyWordsOfPrograms(t *testing.T) {
	read := func(path string) []byte {
		return map[string][]byte{"c.yaml": []byte("train:\n  micro_batch_size: 2\n")}[path]
	}
	found := Job{Command: format.Command{Argv: []string{"./train.sh", "4", "--batch-size", "8", "--config", "c.yaml", "-j", "4"}}, Read: read}.Likely()
	var names []string
	for _, one := range found[micro].Likely {
		names = append(names, one.Name+" "+one.Key)
	}
	if want := "train.micro_batch_size of c.yaml train.micro_batch_size, --batch-size batch_size"; strings.Join(names, ", ") != want || len(found) != 1 {
		t.Errorf("%s of %v, want %s", names, found, want)
	}
}

// An argument counts the samples of all ranks by its name, or by its help.
func TestLikelyOfAllRanks(t *testing.T) {
	for text, want := range map[string]bool{
		"'--batch-size', help='input batch size'":                                                    false,
		"'--batch-size', help='total batch size for all GPUs'":                                       true,
		"'--batch-size', help='mini-batch size (default: 256), this is the total batch size of all'": true,
		"'--batch-size', help='batch size over all the processes'":                                   true,
		"'--batch-size', help='Batch size per GPU (the total batch is this times the GPUs)'":         false,
		"'--global-batch-size'":         true,
		"'--train-global-batch-size'":   false,
		"'--per-device-batch', help=''": false,
	} {
		cmd := format.Command{Argv: []string{"train.py"}, Code: codeOf(t, "import argparse\np = argparse.ArgumentParser()\np.add_argument("+text+", type=int)\n")}
		for _, one := range (Job{Command: cmd}.Likely())[micro].Likely {
			if one.All != want {
				t.Errorf("%s: all ranks %t, want %t", text, one.All, want)
			}
		}
	}
}

// Any candidate has a place that a recipe can read, and a key of the parser's result.
func TestLikelyPlaces(t *testing.T) {
	cmd := format.Command{Argv: []string{"train.py"}, Code: codeOf(t, "import argparse\np = argparse.ArgumentParser()\np.add_argument('-b', '--batch-size', dest='bs', type=int, default=8, choices=[4, 8])\n")}
	one := Job{Command: cmd}.Likely()[micro].Likely[0]
	if one.Key != "bs" || len(one.Knob.Places) != 1 || !cmp.Equal(one.Choices, []string{"4", "8"}) || !cmp.Equal(one.Entry, map[string]any{"arg": []any{"--batch-size", "-b"}, "default": int64(8)}) {
		t.Errorf("%+v", one)
	}
}

// Functions that start ranks are recognised by their names.
func TestJoins(t *testing.T) {
	for text, want := range map[string]string{
		"import torch.multiprocessing as mp\nmp.start_processes(f)\n":         "train.py calls mp.start_processes, which starts ranks",
		"import submitit\nsubmitit.AutoExecutor('x').submit(f)\n":             "train.py imports submitit, which starts the ranks itself",
		"import torch.distributed as dist\ndist.init_process_group('nccl')\n": "train.py calls init_process_group",
		"import torch\n": "",
	} {
		if j, _ := Joins([]format.Source{{Path: "train.py", Text: []byte(text)}}, codeOf(t, text)); j.By != want {
			t.Errorf("%q: %q, want %q", text, j.By, want)
		}
	}
}
