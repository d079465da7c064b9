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
func (r Resolved) keepSchedule(knobs map[strategy.Knob]strategy.Range) (warnings []string) {
	micro := knobs[strategy.MicroBatchSize]
	if micro.Absent != "" || !slices.Contains(ownSchedules, r.recipe.Name) {
		return nil
	}
	warnings = guest(batchSchedule, func() error {
		micro.Absent = r.scheduleOfBatches()
		return nil
	})
	if len(warnings) > 0 {
		micro.Absent = warnings[0]
	}
	if micro.Absent != "" {
		knobs[strategy.MicroBatchSize] = micro
	}
	return warnings
}

// scheduleOfBatches says where the learning rate follows from the number of batches; empty
// where it does nowhere.
func (r Resolved) scheduleOfBatches() string {
	for _, s := range r.sources() {
		if schedule, found := source.BatchSchedule(s.Text); found {
			file, err := filepath.Rel(r.job.Workdir, s.Path)
			if err != nil {
				file = s.Path
			}
			return fmt.Sprintf("%s:%d: %s: with smaller ones the learning rate would run another way; count optimizer steps there", file, schedule.Line, schedule)
		}
	}
	return ""
}
