package recipes

import (
	"slices"
	"strings"

	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// lightningConfigs are the arguments that name a LightningCLI's configuration.
var lightningConfigs = []string{"--config", "-c"}

// mergedConfigs is the rule for LightningCLI, which merges all files that it is
// given (https://lightning.ai/docs/pytorch/stable/cli/lightning_cli_advanced.html):
// what is in which of them is not looked for.
func mergedConfigs(r *format.Recipe) {
	several := format.Condition{Repeated: lightningConfigs, Unknown: true, Reason: "several --config are merged: it may be in any of them"}
	for k, knob := range r.Knobs {
		if len(knob.Places) == 0 {
			continue
		}
		// What is known for certain is said first.
		at := slices.IndexFunc(knob.Unless, func(c format.Condition) bool { return c.Unknown })
		if at < 0 {
			at = len(knob.Unless)
		}
		knob.Unless = slices.Insert(slices.Clone(knob.Unless), at, several)
		r.Knobs[k] = knob
	}
}

// countedIntervals is the rule for Lightning's trainer, whose intervals count micro
// batches where they are whole numbers: they grow with accumulation.
func countedIntervals(r *format.Recipe) {
	const accumulate = "accumulate_grad_batches"
	knob := r.Knobs[strategy.GradientAccumulationSteps]
	for _, interval := range []string{"val_check_interval", "limit_train_batches"} {
		for _, p := range knob.Places {
			for _, argument := range p.Arguments() {
				knob.Scales = append(knob.Scales, format.Argument(strings.Replace(argument, accumulate, interval, 1)))
			}
			if p.InFile() != nil {
				knob.Scales = append(knob.Scales, format.Key("trainer."+interval, lightningConfigs...))
			}
		}
	}
	r.Knobs[strategy.GradientAccumulationSteps] = knob
}
