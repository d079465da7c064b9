package recipes

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// accumulatedFeatures is the rule for programs made from open_clip's: what --accum-freq runs
// (open_clip_train/train.py) has to call the model as the job's own model is called.
var accumulatedFeatures = format.Rule{Read: func(d *format.Draft, _ Topology, _ strategy.Plan, ranges map[strategy.Knob]strategy.Range) error {
	why := unlikeForward(d.Original)
	if why == "" {
		return nil
	}
	refused := strategy.Range{Absent: why}
	ranges[strategy.MicroBatchSize], ranges[strategy.GradientAccumulationSteps] = refused, refused
	return nil
}}

// unlikeForward says why the loop that accumulates cannot call the model; empty where it can.
func unlikeForward(c Command) string {
	least := -1
	texts := c.Sources()
	for i, file := range c.Code {
		if !bytes.Contains(texts[i], []byte("accum_freq")) {
			continue
		}
		for _, call := range (format.Code{file}).Calls("model") {
			n := len(call.Positional) + len(call.Keyword)
			if least >= 0 && n != least {
				return fmt.Sprintf("the loop calls the model with %d arguments, and with %d where --accum-freq is more than 1", max(n, least), min(n, least))
			}
			least = n
		}
	}
	if least < 0 {
		return ""
	}
	for _, file := range c.Code {
		for _, class := range file.Classes {
			if class.Forward > least && strings.Contains(class.Name, "CLIP") {
				return fmt.Sprintf("the forward of %s takes %d arguments, and --accum-freq calls it with %d", class.Name, class.Forward, least)
			}
		}
	}
	return ""
}
