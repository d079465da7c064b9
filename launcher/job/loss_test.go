package job

import (
	"strings"
	"testing"

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
		"a library's model": {map[string]string{"train.py": arguments + "Trainer(model, args).train()\n"}, strategy.Exact, "the Trainer divides the loss by the accumulation", ""},
		"a loss of the job's own": {map[string]string{"train.py": arguments + "import torch.nn.functional as F\nclass Mine(Trainer):\n    def compute_loss(self, model, inputs, **kwargs):\n        return F.cross_entropy(model(**inputs), inputs['labels'], ignore_index=0)\nMine(model, args).train()\n"},
			strategy.Average, "the mean leaves out ignore_index (train.py:6)", ""},
		"a model of the job's own": {map[string]string{"train.py": arguments + "from net import Net\nTrainer(Net(), args).train()\n", "net.py": "import torch.nn as nn\nimport torch.nn.functional as F\nclass Net(nn.Module):\n    def forward(self, x, labels):\n        loss = F.mse_loss(self.net(x), labels)\n        return {'loss': loss}\n"},
			strategy.Exact, "the loss is a mean over the samples (net.py:5), divided by the framework; the Trainer", ""},
		"a model that compares samples": {map[string]string{"train.py": arguments + "from fgclip import FGCLIP\nTrainer(FGCLIP(), args).train()\n", "fgclip.py": clip},
			"", "", "the loss compares the samples of one micro batch with each other (fgclip.py:"},
	} {
		t.Run(name, func(t *testing.T) {
			_, p := ownScript(t, test.files, "train.py", "--output_dir", "out", "--per_device_train_batch_size", "8")
			if p.RecipeName() != "hf-trainer" {
				t.Fatalf("the recipe is %s: %q", p.RecipeName(), p.Warnings())
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
