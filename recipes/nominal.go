package recipes

import (
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// swiftAccumulation is the rule for ms-swift, which accumulates over as many micro
// batches as make 16 samples on all ranks, where it is not told how many
// (swift/arguments/sft_args.py).
func swiftAccumulation(r *format.Recipe) {
	knob := r.Knobs[strategy.GradientAccumulationSteps]
	knob.Global = &format.Global{Nominal: "ceil"}
	knob.DefaultIsGlobal()
	r.Knobs[strategy.GradientAccumulationSteps] = knob
}

// ultralyticsBatch is the rule for Ultralytics: it accumulates up to a nominal
// batch, nbs, rounded to the nearest whole number of micro batches, and its batch
// can be -1 or a fraction, for as much as fits (ultralytics/engine/trainer.py).
func ultralyticsBatch(r *format.Recipe) {
	if g := r.Knobs[strategy.GradientAccumulationSteps].Global; g != nil {
		g.Nominal, g.Fixed = "nearest", true
	}
	for i := range r.Knobs[strategy.MicroBatchSize].Places {
		r.Knobs[strategy.MicroBatchSize].Places[i].Chosen = true
	}
}
