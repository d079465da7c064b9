package recipes

import (
	"bytes"

	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// trainingLoader is the rule for scripts whose loaders are made in code. Of several
// loaders the one that shuffles is what trains. A script that counts batches by itself
// would train by another schedule with smaller ones: its batch is left alone.
var trainingLoader = format.Rule{
	Shape: func(r *format.Recipe) {
		for _, k := range []strategy.Knob{strategy.MicroBatchSize, strategy.DataloaderWorkers} {
			for i, p := range r.Knobs[k].Places {
				r.Knobs[k].Places[i] = format.Where(p, "shuffle", true)
			}
		}
	},
	Read: func(d *format.Draft, _ Topology, plan strategy.Plan, ranges map[strategy.Knob]strategy.Range) error {
		for _, text := range d.Original.Sources() {
			for _, word := range countsBatches {
				if bytes.Contains(text, []byte(word)) && ranges[strategy.MicroBatchSize].Absent == "" {
					ranges[strategy.MicroBatchSize] = strategy.Range{Absent: "the code counts batches (" + word + "), of which there would be more"}
				}
			}
		}
		return nil
	},
}

// countsBatches are words by which code sets up a schedule, or an interval, in batches.
var countsBatches = []string{
	"steps_per_epoch", "len(train_loader", "len(train_dataloader", "len(self.train_dataloader", "num_training_batches",
	"val_check_interval", "limit_train_batches", "batch_idx %", "manual_optimization", "automatic_optimization = False", "automatic_optimization=False",
}
