package recipes

import (
	"slices"

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

// swiftVersion is the rule that tells ms-swift 2 from later ones by the arguments, where
// its version is not known: their names were changed in 3.0. A model was named by
// --model_type or --model_id_or_path, and later by --model.
var swiftVersion = format.Rule{Shape: func(r *format.Recipe) {
	old := r.Name == "ms-swift-2"
	for i := range r.Knobs[strategy.SequenceLength].Places {
		r.Knobs[strategy.SequenceLength].Places[i].Chosen = true // -1: no limit
	}
	r.Detection.Not = func(cmd Command) string {
		d := format.NewDraft(*r, cmd)
		named := slices.ContainsFunc([]string{"--sft_type", "--model_id_or_path", "--custom_train_dataset_path", "--batch_size"}, d.HasWord)
		if is := named || d.HasWord("--model_type") && !d.HasWord("--model"); is != old {
			return "the arguments are those of another version of ms-swift"
		}
		return ""
	}
}}
