package job

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy"
)

// TestConfigurationLibraries: the micro batch of a script by the library that reads its settings,
// and the change for another one: a word of the command where the parser takes one, else a changed
// copy of the file.
func TestConfigurationLibraries(t *testing.T) {
	const (
		torch = "import torch\nfrom torch.utils.data import DataLoader\n"
		// size is the expression of the batch size, accum that of the accumulation.
		loop   = "for i, x in enumerate(DataLoader(data, batch_size=SIZE, shuffle=True)):\n    loss = model(x).mean() / ACCUM\n    loss.backward()\n    if (i + 1) % ACCUM == 0:\n        optimizer.step()\n        optimizer.zero_grad()\n"
		yaml   = "train:\n  batch_size: 16\n  accum: 1\n"
		fields = "from dataclasses import dataclass, field\n@dataclass\nclass Args:\n    batch_size: int = 16\n    accum: int = 1\n"
		parse  = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--config', default='a.yaml')\nargs = p.parse_args()\n"
	)
	const parseGPUs = "import argparse\nimport pytorch_lightning as pl\np = argparse.ArgumentParser()\np.add_argument('--batch_size', type=int, default=8)\np.add_argument('--gpus', type=int, default=1)\nargs = p.parse_args()\n"
	fit := func(size string) string {
		return "pl.Trainer(gpus=args.gpus).fit(pl.LightningModule(), DataLoader(data, batch_size=" + size + ", shuffle=True))\n"
	}
	train := func(size, accum string) string {
		return strings.NewReplacer("SIZE", size, "ACCUM", accum).Replace(loop)
	}
	in := func(text string) string {
		return "    " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n    ") + "\n"
	}
	own := train("cfg.train.batch_size", "cfg.train.accum")
	for name, test := range map[string]struct {
		script string
		files  map[string]string
		words  string
		want   string
		change string // in the words of the changed command, or in the diff
	}{
		"yacs": {parse + "from yacs.config import CfgNode as CN\ncfg = CN()\ncfg.train = CN()\ncfg.train.batch_size = 4\ncfg.train.accum = 1\ncfg.merge_from_file(args.config)\n" + own,
			map[string]string{"a.yaml": yaml}, "--config a.yaml", "16", "+  batch_size: 2"},
		"yacs with words": {strings.Replace(parse, "args =", "p.add_argument('opts', nargs='*')\nargs =", 1) + "from yacs.config import CfgNode as CN\ncfg = CN()\ncfg.train = CN()\ncfg.train.batch_size = 4\ncfg.train.accum = 1\ncfg.merge_from_file(args.config)\ncfg.merge_from_list(args.opts)\n" + own,
			map[string]string{"a.yaml": yaml}, "--config a.yaml", "16", "train.batch_size 2"},
		"Config.fromfile":               {parse + "from mmcv import Config\ncfg = Config.fromfile(args.config)\n" + own, map[string]string{"a.yaml": yaml}, "--config a.yaml", "16", "+  batch_size: 2"},
		"Config.fromfile, py":           {parse + "from mmcv import Config\ncfg = Config.fromfile(args.config)\n" + own, map[string]string{"a.py": "train = dict(batch_size=16, accum=1)\n"}, "--config a.py", "to be reported by the job's process", ""},
		"EasyDict":                      {parse + "import yaml\nfrom easydict import EasyDict as edict\ncfg = edict(yaml.safe_load(open(args.config)))\n" + own, map[string]string{"a.yaml": yaml}, "--config a.yaml", "16", "+  batch_size: 2"},
		"EasyDict, JSON":                {parse + "import json\nfrom easydict import EasyDict\nwith open(args.config) as f:\n    cfg = EasyDict(json.load(f))\n" + own, map[string]string{"a.json": "{\"train\": {\"batch_size\": 16, \"accum\": 1}}\n"}, "--config a.json", "16", "\"batch_size\": 2"},
		"OmegaConf":                     {parse + "from omegaconf import OmegaConf\ncfg = OmegaConf.load(args.config)\n" + own, map[string]string{"a.yaml": yaml}, "--config a.yaml", "16", "+  batch_size: 2"},
		"OmegaConf, merged":             {strings.Replace(parse, "p.parse_args()", "p.parse_known_args()", 1) + "from omegaconf import OmegaConf\nargs, rest = args\ncfg = OmegaConf.merge(OmegaConf.load(args.config), OmegaConf.from_cli(rest))\n" + own, map[string]string{"a.yaml": yaml}, "--config a.yaml train.batch_size=8", "8", "train.batch_size=2"},
		"hydra, the file":               {"import hydra\n@hydra.main(config_path='conf', config_name='main')\ndef main(cfg):\n" + in(own) + "main()\n", map[string]string{"conf/main.yaml": yaml}, "", "16", "train.batch_size=2"},
		"hydra, .yml":                   {"import hydra\n@hydra.main(config_path='conf', config_name='main.yml')\ndef main(cfg):\n" + in(own) + "main()\n", map[string]string{"conf/main.yml": yaml}, "", "16", "train.batch_size=2"},
		"hydra, a word":                 {"import hydra\n@hydra.main(config_path='conf', config_name='main')\ndef main(cfg):\n" + in(own) + "main()\n", map[string]string{"conf/main.yaml": yaml}, "train.batch_size=8", "8", "train.batch_size=2"},
		"hydra, divided by the ranks":   {"import hydra, torch.distributed as dist\n@hydra.main(config_path='conf', config_name='main')\ndef main(cfg):\n    cfg.train.batch_size //= dist.get_world_size()\n" + in(own) + "main()\n", map[string]string{"conf/main.yaml": yaml}, "", "to be reported by the job's process", ""},
		"hydra, a group":                {"import hydra\n@hydra.main(config_path='conf', config_name='main')\ndef main(cfg):\n" + in(own) + "main()\n", map[string]string{"conf/main.yaml": "defaults:\n  - train: small\n", "conf/train/small.yaml": "batch_size: 16\naccum: 1\n", "conf/train/large.yaml": "batch_size: 32\naccum: 1\n"}, "train=large", "32", "train.batch_size=2"},
		"hydra, interpolation":          {"import hydra\n@hydra.main(config_path='conf', config_name='main')\ndef main(cfg):\n" + in(own) + "main()\n", map[string]string{"conf/main.yaml": "bs: 16\ntrain:\n  batch_size: ${bs}\n  accum: 1\n"}, "", "16", "train.batch_size=2"},
		"jsonargparse":                  {"from jsonargparse import CLI\ndef main(batch_size: int = 16, accum: int = 1):\n" + in(train("batch_size", "accum")) + "CLI(main)\n", nil, "--batch_size 8", "8", "--batch_size 2"},
		"jsonargparse, a file":          {"from jsonargparse import ArgumentParser, ActionConfigFile\np = ArgumentParser()\np.add_argument('--config', action=ActionConfigFile)\np.add_argument('--batch_size', type=int, default=4)\np.add_argument('--accum', type=int, default=1)\nargs = p.parse_args()\n" + train("args.batch_size", "args.accum"), map[string]string{"a.yaml": "batch_size: 16\naccum: 1\n"}, "--config a.yaml", "16", "--batch_size 2"},
		"a wrapper":                     {parse + "from config import load\ncfg = load(args.config)\n" + train("cfg['train']['batch_size']", "cfg['train']['accum']"), map[string]string{"a.yaml": yaml, "config.py": "import yaml\nclass Loader(yaml.SafeLoader):\n    pass\ndef load(path):\n    with open(path) as f:\n        return yaml.load(f, Loader=Loader)\n"}, "--config a.yaml", "16", "+  batch_size: 2"},
		"HfArgumentParser":              {fields + "from transformers import HfArgumentParser\nargs, = HfArgumentParser(Args).parse_args_into_dataclasses()\n" + train("args.batch_size", "args.accum"), nil, "--batch_size 8", "8", "--batch_size 2"},
		"simple_parsing":                {fields + "from simple_parsing import ArgumentParser\np = ArgumentParser()\np.add_arguments(Args, dest='train')\nargs = p.parse_args()\n" + train("args.train.batch_size", "args.train.accum"), nil, "--batch_size 8", "8", "--batch_size 2"},
		"simple_parsing.parse":          {fields + "import simple_parsing\nargs = simple_parsing.parse(Args)\n" + train("args.batch_size", "args.accum"), nil, "--batch_size 8", "8", "--batch_size 2"},
		"simple_parsing, imported":      {fields + "from simple_parsing import parse\nargs = parse(Args)\n" + train("args.batch_size", "args.accum"), nil, "--batch_size 8", "8", "--batch_size 2"},
		"tyro":                          {fields + "import tyro\nargs = tyro.cli(Args)\n" + train("args.batch_size", "args.accum"), nil, "--batch-size 8", "8", "--batch-size 2"},
		"tyro, a function":              {"import tyro\ndef main(batch_size: int = 16, accum: int = 1):\n" + in(train("batch_size", "accum")) + "tyro.cli(main)\n", nil, "", "16", "--batch-size 2"},
		"click":                         {"import click\n@click.command()\n@click.option('--bs', 'batch_size', default=16)\n@click.option('--accum', default=1)\ndef main(batch_size, accum):\n" + in(train("batch_size", "accum")) + "main()\n", nil, "", "16", "--bs 2"},
		"typer":                         {"import typer\ndef main(batch_size: int = 16, accum: int = 1):\n" + in(train("batch_size", "accum")) + "typer.run(main)\n", nil, "--batch-size 8", "8", "--batch-size 2"},
		"fire":                          {"import fire\ndef main(batch_size: int = 16, accum: int = 1):\n" + in(train("batch_size", "accum")) + "fire.Fire(main)\n", nil, "--batch_size=8", "8", "--batch_size=2"},
		"fire, a function by its name":  {"import fire\ndef main(batch_size: int = 16, accum: int = 1):\n" + in(train("batch_size", "accum")) + "fire.Fire()\n", nil, "main --batch_size=8", "8", "--batch_size=2"},
		"fire, all words of a function": {"import fire\ndef main(**words):\n    size = 1 if words else 2\n" + in(train("size", "1")) + "fire.Fire()\n", nil, "main --x=8", "to be reported by the job's process", ""},
		"fire, a class":                 {"import fire\nclass Run:\n    def __init__(self, batch_size=16, accum=1):\n        self.batch_size, self.accum = batch_size, accum\n    def train(self):\n" + in(in(train("self.batch_size", "self.accum"))) + "fire.Fire(Run)\n", nil, "train --batch_size=8", "8", "--batch_size=2"},
		"Tap":                           {"from tap import Tap\nclass Args(Tap):\n    batch_size: int = 16\n    accum: int = 1\nargs = Args().parse_args()\n" + train("args.batch_size", "args.accum"), nil, "--batch_size 8", "8", "--batch_size 2"},
		"positional":                    {"import argparse\np = argparse.ArgumentParser()\np.add_argument('data')\np.add_argument('batch_size', type=int)\np.add_argument('--accum', type=int, default=1)\nargs = p.parse_args()\n" + train("args.batch_size", "args.accum"), nil, "d 8", "to be reported by the job's process", ""},
		"words of a function":           {"import argparse\np = argparse.ArgumentParser()\np.add_argument('--batch-size', type=int, default=4)\nargs = p.parse_args()\ndef words():\n    kwargs = {}\n    if args:\n        kwargs['batch_size'] = args.batch_size\n    return kwargs\nloader_words = words()\nfor x in DataLoader(data, **loader_words):\n    model(x).mean().backward()\n    optimizer.step()\n", nil, "--batch-size 8", "to be reported by the job's process", ""},
		"Lightning that counts batches": {"import pytorch_lightning as pl\nfrom omegaconf import OmegaConf\ncfg = OmegaConf.load('a.yaml')\npl.Trainer(val_check_interval=3).fit(pl.LightningModule(), DataLoader(data, batch_size=cfg.train.sizes[0], shuffle=True))\n", map[string]string{"a.yaml": yaml}, "", "to be reported by the job's process", ""},
		"a positional file":             {"import argparse, yaml\np = argparse.ArgumentParser()\np.add_argument('config')\np.add_argument('--seed', type=int)\nargs = p.parse_args()\nwith open(args.config) as f:\n    cfg = yaml.safe_load(f)\n" + train("cfg['train']['batch_size']", "cfg['train']['accum']"), map[string]string{"a.yaml": yaml}, "--seed 3 a.yaml", "16", "+  batch_size: 2"},
		"a file in sys.argv":            {"import sys, yaml\ncfg = yaml.safe_load(open(sys.argv[1]))\n" + train("cfg['train']['batch_size']", "cfg['train']['accum']"), map[string]string{"a.yaml": yaml}, "a.yaml", "16", "+  batch_size: 2"},

		"Lightning, divided by the GPUs":  {parseGPUs + "args.batch_size //= args.gpus\n" + fit("args.batch_size"), nil, "--batch_size 512 --gpus 2", "to be reported by the job's process", ""},
		"Lightning, multiplied":           {parseGPUs + fit("2 * args.batch_size"), nil, "--batch_size 512 --gpus 2", "to be reported by the job's process", ""},
		"Lightning, a data module":        {parse + "import yaml, pytorch_lightning as pl\ncfg = yaml.safe_load(open(args.config))\nclass Data(pl.LightningDataModule):\n    def __init__(self, batch_size, accum):\n        self.size = batch_size\n    def train_dataloader(self):\n        return DataLoader(data, batch_size=self.size, shuffle=True)\n    def test_dataloader(self):\n        return DataLoader(data, batch_size=144, shuffle=True)\npl.Trainer().fit(pl.LightningModule(), Data(**cfg['train']))\n", map[string]string{"a.yaml": yaml}, "--config a.yaml", "16", ""},
		"Lightning, by position":          {parseGPUs + "pl.Trainer().fit(pl.LightningModule(), DataLoader(data, 2 * args.batch_size, shuffle=True))\n", nil, "--batch_size 512 --gpus 2", "to be reported by the job's process", ""},
		"Lightning, a constant by place":  {"import pytorch_lightning as pl\npl.Trainer().fit(pl.LightningModule(), DataLoader(data, 32, True))\n", nil, "", "32", ""},
		"Lightning, all from a list":      {parseGPUs + "pl.Trainer().fit(pl.LightningModule(), DataLoader(*words, shuffle=True))\n", nil, "--gpus 2", "to be reported by the job's process", ""},
		"Lightning, a constant":           {parseGPUs + fit("32"), nil, "--batch_size 512 --gpus 2", "to be reported by the job's process", ""},
		"Lightning, replaced by code":     {parseGPUs + "args.batch_size = 64\n" + fit("args.batch_size"), nil, "--batch_size 512 --gpus 2", "to be reported by the job's process", ""},
		"Lightning, the argument":         {parseGPUs + fit("args.batch_size"), nil, "--batch_size 512 --gpus 2", "512", "--batch_size 2"},
		"Accelerate that splits batches":  {strings.Replace(parseGPUs, "import pytorch_lightning as pl\n", "", 1) + "from accelerate import Accelerator\naccelerator = Accelerator(split_batches=True)\n" + train("args.batch_size", "1"), nil, "--batch_size 512", "to be reported by the job's process", ""},
		"sys.argv":                        {"import sys\nbatch_size = int(sys.argv[1])\n" + train("batch_size", "1"), nil, "8", "to be reported by the job's process", ""},
		"argparse into a dataclass":       {fields + "import argparse\np = argparse.ArgumentParser()\np.add_argument('--bs', type=int, default=4)\na = p.parse_args()\nargs = Args(batch_size=a.bs)\n" + train("args.batch_size", "args.accum"), nil, "--bs 8", "8", "--bs 2"},
		"a subclass of the loader":        {"import argparse\np = argparse.ArgumentParser()\np.add_argument('--batch-size', type=int, default=4)\nargs = p.parse_args()\nclass Fast(DataLoader):\n    def __init__(self, data, **words):\n        super().__init__(data, **words)\nfor x in Fast(data, batch_size=args.batch_size, shuffle=True):\n    model(x).mean().backward()\n    optimizer.step()\n", nil, "--batch-size 8", "8", "--batch-size 2"},
		"a subclass that hands it on":     {"import argparse\np = argparse.ArgumentParser()\np.add_argument('--batch-size', type=int, default=4)\nargs = p.parse_args()\nclass Fast(DataLoader):\n    def __init__(self, data, size):\n        super().__init__(data, batch_size=size, shuffle=True)\nfor x in Fast(data, args.batch_size):\n    model(x).mean().backward()\n    optimizer.step()\n", nil, "--batch-size 8", "8", "--batch-size 2"},
		"a batch sampler":                 {"import argparse\np = argparse.ArgumentParser()\np.add_argument('--batch-size', type=int, default=4)\nargs = p.parse_args()\nfrom torch.utils.data import BatchSampler, RandomSampler\nfor x in DataLoader(data, batch_sampler=BatchSampler(RandomSampler(data), args.batch_size, False)):\n    model(x).mean().backward()\n    optimizer.step()\n", nil, "--batch-size 8", "8", "--batch-size 2"},
		"the script's batch sampler":      {"import argparse\np = argparse.ArgumentParser()\np.add_argument('--batch-size', type=int, default=4)\nargs = p.parse_args()\nfrom torch.utils.data import Sampler\nclass Buckets(Sampler):\n    def __init__(self, data, batch_size):\n        self.data, self.batch_size = data, batch_size\n    def __iter__(self):\n        for i in range(0, len(self.data), self.batch_size):\n            yield list(range(i, i + self.batch_size))\nfor x in DataLoader(data, batch_sampler=Buckets(data, batch_size=args.batch_size)):\n    model(x).mean().backward()\n    optimizer.step()\n", nil, "--batch-size 8", "8", "--batch-size 2"},
		"set_defaults of a file":          {strings.Replace(parse, "args =", "p.add_argument('--batch_size', type=int, default=4)\np.add_argument('--accum', type=int, default=1)\nargs, rest =", 1) + "import yaml\nif args.config:\n    with open(args.config) as f:\n        p.set_defaults(**yaml.safe_load(f))\nargs = p.parse_args(rest)\n" + train("args.batch_size", "args.accum"), map[string]string{"a.yaml": "batch_size: 16\n"}, "--config a.yaml", "16", "--batch_size 2"},
		"set_defaults of a variable":      {strings.Replace(parse, "args =", "p.add_argument('--batch_size', type=int, default=4)\np.add_argument('--accum', type=int, default=1)\nargs, rest =", 1) + "import yaml\ncfg = yaml.safe_load(open(args.config))\np.set_defaults(**cfg)\nargs = p.parse_args(rest)\n" + train("args.batch_size", "args.accum"), map[string]string{"a.yaml": "batch_size: 16\n"}, "--config a.yaml", "16", "--batch_size 2"},
		"configargparse":                  {"import configargparse\np = configargparse.ArgParser()\np.add_argument('-c', '--config', is_config_file=True)\np.add_argument('--batch_size', type=int, default=4)\np.add_argument('--accum', type=int, default=1)\nargs = p.parse_args()\n" + train("args.batch_size", "args.accum"), map[string]string{"a.yaml": "batch_size: 16\n"}, "-c a.yaml", "16", "--batch_size 2"},
		"setattr of a file":               {strings.Replace(parse, "args =", "p.add_argument('--batch_size', type=int, default=4)\np.add_argument('--accum', type=int, default=1)\nargs =", 1) + "import yaml\nfor k, v in yaml.safe_load(open(args.config)).items():\n    setattr(args, k, v)\n" + train("args.batch_size", "args.accum"), map[string]string{"a.yaml": "batch_size: 16\n"}, "--config a.yaml", "16", "+batch_size: 2"},
		"vars updated by a file":          {strings.Replace(parse, "args =", "p.add_argument('--batch_size', type=int, default=4)\np.add_argument('--accum', type=int, default=1)\nargs =", 1) + "import yaml\nvars(args).update(yaml.safe_load(open(args.config)))\n" + train("args.batch_size", "args.accum"), map[string]string{"a.yaml": "batch_size: 16\n"}, "--config a.yaml", "16", "+batch_size: 2"},
		"__dict__ updated by a file":      {strings.Replace(parse, "args =", "p.add_argument('--batch_size', type=int, default=4)\np.add_argument('--accum', type=int, default=1)\nargs =", 1) + "import yaml\nargs.__dict__.update(yaml.safe_load(open(args.config)))\n" + train("args.batch_size", "args.accum"), map[string]string{"a.yaml": "batch_size: 16\n"}, "--config a.yaml", "16", "+batch_size: 2"},
		"a namespace of both":             {strings.Replace(parse, "args =", "p.add_argument('--batch_size', type=int, default=4)\np.add_argument('--accum', type=int, default=1)\nargs =", 1) + "import yaml\nargs = argparse.Namespace(**{**vars(args), **yaml.safe_load(open(args.config))})\n" + train("args.batch_size", "args.accum"), map[string]string{"a.yaml": "batch_size: 16\n"}, "--config a.yaml", "to be reported by the job's process", ""},
		"HfArgumentParser, a file":        {fields + "import sys\nfrom transformers import HfArgumentParser\np = HfArgumentParser(Args)\nif sys.argv[1].endswith('.json'):\n    args, = p.parse_json_file(sys.argv[1])\nelse:\n    args, = p.parse_args_into_dataclasses()\n" + train("args.batch_size", "args.accum"), map[string]string{"a.json": "{\"batch_size\": 8}\n"}, "a.json", "8", "\"batch_size\": 2"},
		"OmegaConf, two files":            {parse + "from omegaconf import OmegaConf\ncfg = OmegaConf.merge(OmegaConf.load('base.yaml'), OmegaConf.load(args.config))\n" + own, map[string]string{"base.yaml": "train:\n  batch_size: 4\n  accum: 1\n", "a.yaml": yaml}, "--config a.yaml", "16", ""},
		"OmegaConf, a structured default": {parse + fields + "from omegaconf import OmegaConf\ncfg = OmegaConf.merge(OmegaConf.structured(Args), OmegaConf.load(args.config))\n" + train("cfg.batch_size", "cfg.accum"), map[string]string{"a.yaml": "batch_size: 8\n"}, "--config a.yaml", "8", ""},
		"OmegaConf, from_dotlist":         {strings.Replace(parse, "args =", "p.add_argument('opts', nargs='*')\nargs =", 1) + "from omegaconf import OmegaConf\ncfg = OmegaConf.load(args.config)\ncfg.merge_with_dotlist(args.opts)\n" + own, map[string]string{"a.yaml": yaml}, "--config a.yaml train.batch_size=8", "8", "train.batch_size=2"},
		"Tap, config_files":               {"from tap import Tap\nclass Args(Tap):\n    batch_size: int = 4\n    accum: int = 1\nargs = Args(config_files=['a.txt']).parse_args()\n" + train("args.batch_size", "args.accum"), map[string]string{"a.txt": "--batch_size 16\n"}, "", "to be reported by the job's process", ""},
		"an override in code":             {parse + "import yaml\ncfg = yaml.safe_load(open(args.config))\ncfg['train'].update(batch_size=3)\n" + train("cfg['train']['batch_size']", "cfg['train']['accum']"), map[string]string{"a.yaml": yaml}, "--config a.yaml", "to be reported by the job's process", ""},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"train.py": torch + test.script}
			for file, text := range test.files {
				files[file] = text
			}
			dir, p := ownScript(t, files, append([]string{"train.py"}, strings.Fields(test.words)...)...)
			if got := p.Value(strategy.MicroBatchSize); got != test.want {
				t.Errorf("%q, want %q: %+v", got, test.want, p.StrategyJob().Knobs[strategy.MicroBatchSize])
			}
			if test.change == "" {
				return
			}
			change, err := p.Apply(p.Plan().With(strategy.Plan{strategy.MicroBatchSize: "2"}), "", dir)
			if err != nil {
				t.Fatal(err)
			}
			if all := strings.Join(change.Argv, " ") + "\n" + change.Diff; !strings.Contains(all, test.change) {
				t.Errorf("changed to %s, want %q", all, test.change)
			}
		})
	}
}
