package recipes

import (
	"bytes"

	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// textEncoder is the rule for diffusers' scripts that refuse to accumulate on several
// processes while they train the text encoder
// (examples/dreambooth/train_dreambooth.py).
var textEncoder = format.Rule{Read: func(d *format.Draft, at Topology, _ strategy.Plan, ranges map[strategy.Knob]strategy.Range) error {
	on, err := d.On("--train_text_encoder")
	if err != nil || !on || at.Ranks < 2 {
		return err
	}
	script := d.Original.Script
	if script != nil && !bytes.Contains(script, []byte("Gradient accumulation is not supported when training the text encoder")) {
		return nil
	}
	refused := strategy.Range{Absent: "the script refuses to accumulate with --train_text_encoder on several ranks"}
	ranges[strategy.MicroBatchSize], ranges[strategy.GradientAccumulationSteps] = refused, refused
	return nil
}}
