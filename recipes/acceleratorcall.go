package recipes

import (
	"fmt"
	"strings"

	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// acceleratorCall is the rule for jobs with an Accelerator of their own. What its
// call is given is stronger than what accelerate launch was told by variables
// (accelerate/accelerator.py), so that a change of these would be none.
var acceleratorCall = format.Rule{Read: readAcceleratorCall}

// givenToAccelerator are the keywords of Accelerator, and the knobs that they take out of
// the launcher's hands.
var givenToAccelerator = map[string][]strategy.Knob{
	"mixed_precision":   {strategy.Precision},
	"deepspeed_plugin":  {strategy.Sharding, strategy.OffloadOptimizer, strategy.OffloadParam},
	"deepspeed_plugins": {strategy.Sharding, strategy.OffloadOptimizer, strategy.OffloadParam},
	"fsdp_plugin":       {strategy.Sharding, strategy.OffloadOptimizer, strategy.OffloadParam},
	"megatron_lm_plugin": {
		strategy.Sharding, strategy.OffloadOptimizer, strategy.OffloadParam, strategy.MicroBatchSize, strategy.GradientAccumulationSteps,
	},
}

func readAcceleratorCall(d *format.Draft, _ Topology, _ strategy.Plan, ranges map[strategy.Knob]strategy.Range) error {
	for _, call := range d.Original.Code.Calls("Accelerator", "accelerate.Accelerator") {
		for keyword, knobs := range givenToAccelerator {
			value, given := call.Keyword[keyword]
			if !given || value.None {
				continue
			}
			for _, knob := range knobs {
				if r, there := ranges[knob]; there && r.Absent == "" && !argumentOf(value.Code, d, knob) {
					ranges[knob] = strategy.Range{Absent: fmt.Sprintf("the script gives the Accelerator %s, which is stronger than the launcher's", keyword)}
				}
			}
		}
	}
	return nil
}

// argumentOf reports whether an expression is the argument in which the recipe keeps a
// knob, so that a change of the argument arrives: args.mixed_precision.
func argumentOf(expression string, d *format.Draft, knob strategy.Knob) bool {
	name := expression[strings.LastIndexByte(expression, '.')+1:]
	for _, p := range d.Recipe.Knobs[knob].Places {
		if strings.Contains(p.String(), "--"+name) {
			return true
		}
	}
	return false
}
