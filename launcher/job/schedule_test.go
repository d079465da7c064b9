package job

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy"
)

// A learning rate that follows from the number of batches keeps the batch as it is, also
// where the user has said where it is kept.
func TestAScheduleThatCountsBatches(t *testing.T) {
	const loop = "import torch\nfrom accelerate import Accelerator\nschedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, steps_per_epoch=len(loader), epochs=2)\n"
	const knobs = "[knobs]\nmicro_batch_size = { arg = \"--bs\" }\ngradient_accumulation_steps = { arg = \"--accum\" }\n"
	for name, test := range map[string]struct{ source, reason string }{
		"in batches": {loop, "train.py:3: OneCycleLR counts batches (steps_per_epoch=len(loader))"},
		"in steps":   {strings.ReplaceAll(loop, "len(loader)", "len(loader) // args.accum"), ""},
	} {
		dir, _ := folder(t, map[string]string{
			"train.py": test.source, "train.toml": "[job]\nscript = \"train.py\"\nargs = [\"--bs\", \"8\", \"--accum\", \"1\"]\n" + knobs,
		})
		p, err := prepared(t, dir, machine(dir), "train.toml")
		if err != nil {
			t.Fatal(err)
		}
		if got := p.StrategyJob().Knobs[strategy.MicroBatchSize].Absent; !strings.HasPrefix(got, test.reason) || (got == "") != (test.reason == "") {
			t.Errorf("%s: %q, want %q", name, got, test.reason)
		}
		if p.Plan()[strategy.MicroBatchSize] != "8" {
			t.Errorf("%s: the batch is %q", name, p.Plan()[strategy.MicroBatchSize])
		}
	}
}
