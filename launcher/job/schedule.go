package job

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/gpurun/gpurun/recipes/source"
	"github.com/gpurun/gpurun/strategy"
)

// ownSchedules are the recipes whose jobs make the learning rate's schedule themselves;
// the others' frameworks count optimizer steps. A job of [knobs] alone has no name.
var ownSchedules = []string{"", "own-script", "accelerate", "deepspeed", "lightning-script"}

// keepSchedule leaves the micro batch of a job alone whose learning rate follows from the
// number of batches: there would be more of them, and as many optimizer steps as before.
func (r Resolved) keepSchedule(knobs map[strategy.Knob]strategy.Range) {
	micro := knobs[strategy.MicroBatchSize]
	if micro.Absent != "" || !slices.Contains(ownSchedules, r.recipe.Name) {
		return
	}
	for _, s := range r.sources() {
		if schedule, found := source.BatchSchedule(s.Text); found {
			file, err := filepath.Rel(r.job.Workdir, s.Path)
			if err != nil {
				file = s.Path
			}
			micro.Absent = fmt.Sprintf("%s:%d: %s: with smaller ones the learning rate would run another way; count optimizer steps there", file, schedule.Line, schedule)
			knobs[strategy.MicroBatchSize] = micro
			return
		}
	}
}
