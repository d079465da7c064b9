package recipes

import (
	"slices"

	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/recipes/patch"
	"github.com/gpurun/gpurun/strategy"
)

// trainerState is the rule for checkpoints of the Hugging Face Trainer. From
// transformers 4.36 to 5.1 a resumed run takes its batch size from the
// checkpoint and not from the arguments
// (https://github.com/huggingface/transformers/pull/27568, undone by https://github.com/huggingface/transformers/pull/43770 except
// under auto_find_batch_size), so that a smaller micro batch would be lost.
var trainerState = format.Rule{Checkpoint: map[string]func([]byte, strategy.Plan) ([]byte, error){
	"trainer_state.json": rewriteTrainBatchSize,
}}

// spread is over how many devices a Trainer of one process spreads each batch, by
// DataParallel: what it calls its batch is that of all of them. Under DeepSpeed it
// has one device.
func spread(r format.Recipe, cmd Command) int {
	if cmd.Devices < 2 || !slices.Contains(r.Rules, "trainer-state") || format.NewDraft(r, cmd).Has("--deepspeed") {
		return 1
	}
	return cmd.Devices
}

// rewriteTrainBatchSize puts the plan's micro batch into a trainer_state.json
// that has one. It is never taken out: version 4 divides by it.
func rewriteTrainBatchSize(text []byte, plan strategy.Plan) ([]byte, error) {
	const key = "train_batch_size"
	micro, known := plan.Number(strategy.MicroBatchSize)
	old, found, err := patch.Get(patch.JSON, text, key)
	if err != nil || !known || !found || old == nil {
		return text, err
	}
	return patch.Set(patch.JSON, text, key, micro)
}
