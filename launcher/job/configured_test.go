package job

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy"
)

// TestConfiguredBatch: the micro batch of scripts that read it from configuration files, in each
// way that libraries offer.
func TestConfiguredBatch(t *testing.T) {
	const (
		torch   = "import argparse, json, os, sys, torch, yaml\nfrom torch.utils.data import DataLoader\n"
		parse   = "p = argparse.ArgumentParser()\np.add_argument('-c', '--config', type=str, default='base.yaml')\nargs = p.parse_args()\n"
		train   = "for i, x in enumerate(train_loader):\n    loss = model(x).mean()\n    loss.backward()\n    optimizer.step()\n"
		yacs    = "from yacs.config import CfgNode as CN\n_C = CN()\n_C.TRAIN = CN()\n_C.TRAIN.BATCH = CN()\n_C.TRAIN.BATCH_SIZE = 64\n_C.TEST = CN()\n_C.TEST.BATCH_SIZE = 100\n"
		useYacs = torch + "from defaults import _C as cfg\np = argparse.ArgumentParser()\np.add_argument('--cfg')\np.add_argument('opts', nargs=argparse.REMAINDER)\nargs = p.parse_args()\ncfg.merge_from_file(args.cfg)\ncfg.merge_from_list(args.opts)\n" +
			"def loaders(config):\n    train_loader = DataLoader(data, batch_size=config.TRAIN.BATCH_SIZE)\n    val_loader = DataLoader(data, batch_size=config.TEST.BATCH_SIZE)\n    return train_loader, val_loader\ntrain_loader, _ = loaders(cfg)\n" + train
		space = torch + "from types import SimpleNamespace\n" + parse + "def space(d):\n    n = SimpleNamespace()\n    for k, v in d.items():\n        setattr(n, k, space(v) if isinstance(v, dict) else v)\n    return n\nwith open(os.path.join('configs', args.config)) as f:\n    config = space(yaml.safe_load(f))\n" +
			"train_loader = DataLoader(data, batch_size=config.training.batch_size)\n" + train
		zipped = torch + parse + "config = yaml.load(open(args.config), Loader=yaml.Loader)\ndef create(sets, sizes):\n    made = []\n    for s, bs in zip(sets, sizes):\n        made.append(DataLoader(s, batch_size=bs, shuffle=True))\n    return made\ntrain_loader = create([data], sizes=[config['batch_size']] * 3)[0]\n" + train
		phases = torch + parse + "opt = yaml.safe_load(open(args.config))\ndef make(dataset_opt):\n    return DataLoader(data, batch_size=dataset_opt['per_gpu_batch'], shuffle=True)\nfor phase, dataset_opt in opt['datasets'].items():\n    if phase == 'train':\n        train_loader = make(dataset_opt)\n" + train
		dict   = torch + "def defaults():\n    return dict(batch_size=1, lr=1e-4)\np = argparse.ArgumentParser()\nfor k, v in defaults().items():\n    p.add_argument('--' + k, default=v, type=type(v))\nargs = p.parse_args()\ntrain_loader = DataLoader(data, batch_size=args.batch_size, shuffle=True)\n" + train
	)
	const reported = "to be reported by the job's process"
	for name, test := range map[string]struct {
		files map[string]string
		words string
		want  string
	}{
		"yacs, the file":                 {map[string]string{"train.py": useYacs, "defaults.py": yacs, "a.yaml": "TRAIN:\n  BATCH_SIZE: 16\nTEST:\n  BATCH_SIZE: 8\n"}, "--cfg a.yaml", "16"},
		"yacs, the default":              {map[string]string{"train.py": useYacs, "defaults.py": yacs, "a.yaml": "TEST:\n  BATCH_SIZE: 8\n"}, "--cfg a.yaml", "64"},
		"yacs, a base":                   {map[string]string{"train.py": useYacs, "defaults.py": yacs, "a.yaml": "_BASE_: base/b.yaml\n", "base/b.yaml": "TRAIN:\n  BATCH_SIZE: 24\n"}, "--cfg a.yaml", "24"},
		"yacs, words":                    {map[string]string{"train.py": useYacs, "defaults.py": yacs, "a.yaml": "TRAIN:\n  BATCH_SIZE: 16\n"}, "--cfg a.yaml TRAIN.BATCH_SIZE 12", "12"},
		"a namespace made of YAML":       {map[string]string{"train.py": space, "configs/cifar.yml": "sampling:\n  batch_size: 64\ntraining:\n  batch_size: 128\n"}, "--config cifar.yml", "128"},
		"sizes in a list":                {map[string]string{"train.py": zipped, "a.yaml": "batch_size: 75\n"}, "-c a.yaml", "75"},
		"yacs, merged with another node": {map[string]string{"train.py": strings.Replace(useYacs, "cfg.merge_from_file(args.cfg)", "cfg.merge_from_other_cfg(loaded(args.cfg))", 1), "defaults.py": yacs, "a.yaml": "TRAIN:\n  BATCH_SIZE: 16\n"}, "--cfg a.yaml", reported},
		"a default file":                 {map[string]string{"train.py": zipped, "base.yaml": "batch_size: 32\n"}, "", "32"},
		"one of several parts":           {map[string]string{"train.py": phases, "a.yaml": "datasets:\n  train:\n    per_gpu_batch: 4\n  val:\n    per_gpu_batch: 1\n"}, "-c a.yaml", "4"},
		"several parts of the same kind": {map[string]string{"train.py": phases, "a.yaml": "datasets:\n  train_a:\n    per_gpu_batch: 4\n  train_b:\n    per_gpu_batch: 8\n"}, "-c a.yaml", reported},
		"arguments with computed names":  {map[string]string{"train.py": dict}, "--batch_size 48", "48"},
		"no such argument":               {map[string]string{"train.py": dict}, "--lr 1", reported},
		"a registry":                     {map[string]string{"train.py": torch + parse + "from registry import make\nconfig = json.load(open(args.config))\ntrain_loader = make(config)\n" + train, "a.json": "{\"loader\": {\"batch_size\": 8}}"}, "-c a.json", reported},
		"a constant":                     {map[string]string{"train.py": torch + "train_loader = DataLoader(data, batch_size=8)\n" + train}, "", reported},
		"the default of a function":      {map[string]string{"train.py": torch + "import argbind\n@argbind.bind\ndef make(batch_size=8):\n    return DataLoader(data, batch_size=batch_size, shuffle=True)\ntrain_loader = make()\n" + train}, "", reported},
		"a script in a folder of tools": {map[string]string{"tools/train.py": torch + "import _path\nfrom core import make\np = argparse.ArgumentParser()\np.add_argument('--batch-size', type=int)\nargs = p.parse_args()\ntrain_loader = make(args)\n" + train,
			"tools/_path.py": "import sys, os.path as osp\nsys.path.insert(0, osp.join(osp.dirname(__file__), '..', 'lib'))\n", "lib/core.py": torch + "def make(args):\n    return DataLoader(data, batch_size=args.batch_size, shuffle=True)\n"}, "--batch-size 6", "6"},
		"a package of the working directory": {map[string]string{"tools/train.py": torch + "from pkg.core import make\np = argparse.ArgumentParser()\np.add_argument('--batch-size', type=int)\nargs = p.parse_args()\ntrain_loader = make(args)\n" + train,
			"pkg/__init__.py": "", "pkg/core.py": torch + "def make(args):\n    return DataLoader(data, batch_size=args.batch_size, shuffle=True)\n"}, "--batch-size 6", "6"},
	} {
		t.Run(name, func(t *testing.T) {
			script := "train.py"
			if test.files[script] == "" {
				script = filepath.Join("tools", script)
			}
			_, p := ownScript(t, test.files, append([]string{script}, strings.Fields(test.words)...)...)
			if got := p.Value(strategy.MicroBatchSize); got != test.want {
				t.Errorf("%q, want %q: %+v", got, test.want, p.StrategyJob().Knobs[strategy.MicroBatchSize])
			}
			if why := p.StrategyJob().Knobs[strategy.MicroBatchSize].Absent; test.files["configs/cifar.yml"] != "" && !strings.HasPrefix(why, "which argument names the file is not known, so that gpurun cannot replace training.batch_size in configs/cifar.yml:4; ") {
				t.Error(why)
			}
		})
	}
}

// TestConfiguredBatchWhereARecipeWon: the recipe of a library that does not know where the script
// keeps its batch leaves the reading of the script in force.
func TestConfiguredBatchWhereARecipeWon(t *testing.T) {
	const script = "import argparse\nimport torch\nfrom accelerate import Accelerator\nfrom omegaconf import OmegaConf\naccelerator = Accelerator()\ndef main(cfg):\n    train_loader = torch.utils.data.DataLoader(data, batch_size=cfg.data.train_bs, shuffle=True)\n    for x in train_loader:\n        with accelerator.accumulate(model):\n            accelerator.backward(model(x).loss)\n            optimizer.step()\n" +
		"if __name__ == '__main__':\n    p = argparse.ArgumentParser()\n    p.add_argument('--config')\n    args = p.parse_args()\n    main(OmegaConf.load(args.config))\n"
	_, p := ownScript(t, map[string]string{"train.py": script, "a.yaml": "data:\n  train_bs: 4\n"}, "accelerate", "launch", "train.py", "--config", "a.yaml")
	if got := p.Value(strategy.MicroBatchSize); p.RecipeName() == "own-script" || got != "4" {
		t.Errorf("%s: %q", p.RecipeName(), got)
	}
	if why := p.StrategyJob().Knobs[strategy.MicroBatchSize].Absent; strings.Contains(why, "--per_device_train_batch_size") || !strings.Contains(why, "data.train_bs") {
		t.Error(why)
	}
}
