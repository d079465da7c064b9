package job

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy"
)

// TestHintsNameTheJobsOwnCode: a hint or a reason has the names, lines and values of the job's code, not
// those of a library or of a recipe.
func TestHintsNameTheJobsOwnCode(t *testing.T) {
	const (
		torch      = "import torch\nfrom torch.utils.data import DataLoader\n"
		module     = "class M(pl.LightningModule):\n    pass\n"
		arguments  = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--bs', type=int, default=8)\nargs = p.parse_args()\n"
		accelerate = "from accelerate import Accelerator\naccelerator = Accelerator()\n"
		loop       = "for x in loader:\n    with accelerator.accumulate(model):\n        accelerator.backward(model(x).loss)\n        optimizer.step()\n"
		plain      = "for x in loader:\n    model(x).mean().backward()\n    optimizer.step()\n"
	)
	for name, test := range map[string]struct {
		files map[string]string
		words string
		// want is in the code that is proposed for the micro batch 4, in the value of the micro batch, or in
		// the reason why it cannot change. not is in none of them.
		want, not string
	}{
		"pl.Trainer": {map[string]string{"train.py": torch + "import pytorch_lightning as pl\n" + module + "trainer = pl.Trainer(max_epochs=3)\ntrainer.fit(M(), DataLoader(data, batch_size=16, shuffle=True))\n"},
			"", "DataLoader(…, batch_size=4) (train.py:7); pl.Trainer(…, accumulate_grad_batches=2) (train.py:6)", "lightning.pytorch.Trainer"},
		"L.Trainer": {map[string]string{"train.py": torch + "import lightning as L\nL.Trainer(max_epochs=3).fit(L.LightningModule(), DataLoader(data, batch_size=16, shuffle=True))\n"},
			"", "L.Trainer(…, accumulate_grad_batches=2) (train.py:4)", "lightning.pytorch.Trainer"},
		"a data module": {map[string]string{"train.py": torch + "import pytorch_lightning as pl\n" + module + "class DM(pl.LightningDataModule):\n    def __init__(self, batch_size=16):\n        self.batch_size = batch_size\n    def train_dataloader(self):\n        return DataLoader(self.data, batch_size=self.batch_size, shuffle=True)\ntrainer = pl.Trainer(max_epochs=3)\ntrainer.fit(M(), datamodule=DM(batch_size=64))\n"},
			"", "DM(…, batch_size=4) (train.py:12)", "DataLoader(…"},
		"Accelerate with an argument": {map[string]string{"train.py": torch + arguments + accelerate + "loader = DataLoader(data, batch_size=args.bs, shuffle=True)\n" + loop},
			"accelerate launch train.py --bs 4", "likely 4 by --bs", "--per_device_train_batch_size"},
		"a loader that is not shuffled": {map[string]string{"train.py": torch + "import lightning as L\nL.Trainer(max_epochs=3).fit(L.LightningModule(), DataLoader(data, batch_size=16))\n"},
			"", "only a process can say where it calls torch.utils.data.DataLoader", "has no"},
		"no loader": {map[string]string{"train.py": "import torch\nimport lightning as L\nL.Trainer(max_epochs=3).fit(L.LightningModule(), loader)\n"},
			"", "only a process can say where it calls torch.utils.data.DataLoader", "has no"},
		"an argument of the script": {map[string]string{"train.py": torch + "from dataclasses import dataclass\n@dataclass\nclass Args:\n    batch_size: int = 4\n" + arguments + "cfg = Args(batch_size=args.bs)\nloader = DataLoader(data, batch_size=cfg.batch_size, shuffle=True)\n" + plain},
			"train.py --bs 32", "likely 32 by --bs", "4"},
		"a key of a file": {map[string]string{"a.yaml": "TRAIN:\n  BATCH: 48\n", "train.py": torch + "import argparse\nfrom yacs.config import CfgNode as CN\n_C = CN()\n_C.TRAIN = CN()\n_C.TRAIN.BATCH = 64\np = argparse.ArgumentParser()\np.add_argument('--cfg')\nargs = p.parse_args()\ncfg = _C.clone()\ncfg.merge_from_file(args.cfg)\nloader = DataLoader(data, batch_size=cfg.TRAIN.BATCH, shuffle=True)\n" + plain},
			"train.py --cfg a.yaml", "likely 48 by TRAIN.BATCH of a.yaml", "64"},
		"a loader in another module": {map[string]string{"train.py": "import torch\nimport lightning as L\nfrom mine import loader\nL.Trainer(max_epochs=3).fit(L.LightningModule(), loader(16))\n", "mine.py": "from torch.utils.data import DataLoader\ndef loader(n):\n    return DataLoader([], batch_size=n, shuffle=True)\n"},
			"", "DataLoader(…, batch_size=4) (mine.py:3)", "no call of"},
	} {
		t.Run(name, func(t *testing.T) {
			argv := strings.Fields(test.words)
			if len(argv) == 0 {
				argv = []string{"train.py"}
			}
			dir, p := ownJob(t, test.files, argv...)
			got := []string{p.Value(strategy.MicroBatchSize), p.StrategyJob().Knobs[strategy.MicroBatchSize].Absent}
			if proposal, err := p.Propose(p.Plan().With(strategy.Plan{strategy.MicroBatchSize: "4", strategy.GradientAccumulationSteps: "2"}), nil, dir, 1, nowhere); err == nil {
				got = append(got, strings.Join(proposal.Code, "; "))
			}
			all := strings.Join(got, "\n")
			if !strings.Contains(all, test.want) || strings.Contains(all, test.not) {
				t.Errorf("%s\nwant %q, and not %q", all, test.want, test.not)
			}
		})
	}
}

// TestModelsOfTheJobHaveNoMethodsOfLibraries: gradient_checkpointing_enable is proposed only where the code
// uses a library whose models have it.
func TestModelsOfTheJobHaveNoMethodsOfLibraries(t *testing.T) {
	const loop = "import torch\nfor x in torch.utils.data.DataLoader(data, batch_size=8, shuffle=True):\n    model(x).mean().backward()\n    optimizer.step()\n"
	for text, want := range map[string]bool{loop: true, "from transformers import AutoModel\n" + loop: false} {
		dir, p := ownJob(t, map[string]string{"train.py": text}, "train.py")
		proposal, err := p.Propose(p.Plan().With(strategy.Plan{strategy.ActivationCheckpointing: "full"}), nil, dir, 1, nowhere)
		if err != nil || len(proposal.Turned) == 0 || proposal.OwnModel != want {
			t.Errorf("%s%v: turned %v, own model %v, want %v", text, err, proposal.Turned, proposal.OwnModel, want)
		}
	}
}
