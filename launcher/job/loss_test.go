package job

import (
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/strategy"
)

const clip = `import torch, torch.nn as nn, torch.nn.functional as F
class FGCLIP(nn.Module):
    def forward(self, pixels, ids):
        image, text = self.image(pixels), self.text(ids)
        logits = self.scale.exp() * image @ text.t()
        labels = torch.arange(len(logits))
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}
`

// TestLossOfAJob: what recipe and source show of the loss, whichever recipe has won.
func TestLossOfAJob(t *testing.T) {
	const arguments = "from transformers import HfArgumentParser, Trainer, TrainingArguments\nargs = HfArgumentParser(TrainingArguments).parse_args()\n"
	for name, test := range map[string]struct {
		files   map[string]string
		class   strategy.Training
		reason  string
		refused string // why the micro batch is not offered
	}{
		"a library's model": {map[string]string{"train.py": arguments + "Trainer(model, args).train()\n"}, strategy.Exact, "the Trainer scales the loss for the accumulation", ""},
		"a loss of the job's own": {map[string]string{"train.py": arguments + "import torch.nn.functional as F\nclass Mine(Trainer):\n    def compute_loss(self, model, inputs, **kwargs):\n        return F.cross_entropy(model(**inputs), inputs['labels'], ignore_index=0)\nMine(model, args).train()\n"},
			strategy.Average, "the mean leaves out ignore_index (train.py:6)", ""},
		"a model of the job's own": {map[string]string{"train.py": arguments + "from net import Net\nTrainer(Net(), args).train()\n", "net.py": "import torch.nn as nn\nimport torch.nn.functional as F\nclass Net(nn.Module):\n    def forward(self, x, labels):\n        loss = F.mse_loss(self.net(x), labels)\n        return {'loss': loss}\n"},
			strategy.Exact, "the loss is a mean over the samples (net.py:5), divided by the framework; the Trainer", ""},
		"a model that compares samples": {map[string]string{"train.py": arguments + "from fgclip import FGCLIP\nTrainer(FGCLIP(), args).train()\n", "fgclip.py": clip},
			"", "", "the code compares the samples of one micro batch with each other (fgclip.py:"},
	} {
		t.Run(name, func(t *testing.T) {
			_, p := ownScript(t, test.files, "train.py", "--output_dir", "out", "--per_device_train_batch_size", "8")
			if p.RecipeName() != "hf-trainer" {
				t.Fatalf("the recipe is %s: %q", p.RecipeName(), p.Warnings)
			}
			j := p.StrategyJob()
			if test.refused == "" && (j.Loss.Class != test.class || !strings.Contains(j.Loss.Reason, test.reason)) {
				t.Errorf("%+v, want %s, %s", j.Loss, test.class, test.reason)
			}
			if got := j.Knobs[strategy.MicroBatchSize].Absent; (got == "") != (test.refused == "") || !strings.Contains(got, test.refused) {
				t.Errorf("the micro batch: %q, want %q", got, test.refused)
			}
		})
	}
}

// A user who names the accumulation in [knobs] knows where it is; what the source says of the
// loss counts then too, though gpurun would not have found the accumulation.
func TestLossDividedByTheNamedAccumulation(t *testing.T) {
	const file = "[job]\nscript = \"train.py\"\n[knobs]\nmicro_batch_size = { arg = \"--micro\", default = 8 }\ngradient_accumulation_steps = { arg = \"--parts\", default = 1 }\n"
	script := func(loss string) string {
		return "import argparse, torch\nimport torch.nn.functional as F\nparser = argparse.ArgumentParser()\nparser.add_argument('--micro', type=int, default=8)\n" +
			"parser.add_argument('--parts', type=int, default=1)\nargs = parser.parse_args()\nmodel = torch.nn.Linear(4, 4)\noptimizer = torch.optim.SGD(model.parameters(), 1)\n" +
			"for step in range(9):\n    for part in range(args.parts):\n        x, y = draw(args.micro)\n        " + loss + "\n        loss.backward()\n    optimizer.step()\n"
	}
	for name, test := range map[string]struct {
		loss   string
		class  strategy.Training
		reason string
	}{
		"a mean":              {"loss = F.cross_entropy(model(x), y) / args.parts", strategy.Exact, "the loss is a mean over the samples (train.py:12), divided by --parts"},
		"a mean, not divided": {"loss = F.cross_entropy(model(x), y)", strategy.Average, "the loss is not seen to be divided by --parts (train.py:1"},
		"a sum":               {"loss = F.cross_entropy(model(x), y, reduction='sum') / args.parts", strategy.Average, "the loss is a sum over the samples"},
		"pairs":               {"a = model(x); loss = F.cross_entropy(a @ model(y).t(), torch.arange(len(a))) / args.parts", strategy.Average, "the code compares the samples of one micro batch with each other"},
	} {
		t.Run(name, func(t *testing.T) {
			_, p := ownScript(t, map[string]string{"train.toml": file, "train.py": script(test.loss)}, "train.toml")
			if loss := p.StrategyJob().Loss; loss.Class != test.class || !strings.Contains(loss.Reason, test.reason) {
				t.Errorf("%+v, want %s: %s", loss, test.class, test.reason)
			}
		})
	}
}

// TestLossOfUnreadCode: a recipe alone proves nothing of a job whose own code may compute a
// loss and could not be read.
func TestLossOfUnreadCode(t *testing.T) {
	defer func(before time.Duration) { readingBudget = before }(readingBudget)
	readingBudget = time.Millisecond
	_, p := ownScript(t, map[string]string{"train.py": "from transformers import HfArgumentParser, Trainer, TrainingArguments\nHfArgumentParser(TrainingArguments)\nclass Mine(Trainer):\n    def compute_loss(self, model, inputs):\n        pass\n" + strings.Repeat("def more(x):\n    x = x + 1\n    return more(x)\n", 4000)},
		"train.py", "--output_dir", "out")
	if got := p.StrategyJob().Loss; p.RecipeName() != "hf-trainer" || got.Class != strategy.Average || !strings.Contains(got.Reason, "was not read") {
		t.Errorf("%s, %+v", p.RecipeName(), got)
	}
}
