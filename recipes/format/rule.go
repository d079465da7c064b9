package format

import (
	"github.com/gpurun/gpurun/strategy"
)

// A Rule binds settings of one framework together, in a way that a recipe file cannot
// describe. Recipe files name their rules.
type Rule struct {
	// Shape completes a recipe that was read.
	Shape func(r *Recipe)
	// Read completes what was read from the places of the single knobs.
	Read func(d *Draft, plan strategy.Plan, ranges map[strategy.Knob]strategy.Range) error
	// Apply completes what was set at them; plan holds every knob.
	Apply func(d *Draft, old, plan strategy.Plan) error
	// Checkpoint edits files of a checkpoint, by their name in it, that hold
	// settings of their own.
	Checkpoint map[string]func(text []byte, plan strategy.Plan) ([]byte, error)
}

// LeaveBatch keeps the micro batch and the accumulation from being turned.
func LeaveBatch(ranges map[strategy.Knob]strategy.Range, reason string) {
	ranges[strategy.MicroBatchSize], ranges[strategy.GradientAccumulationSteps] = strategy.Range{Absent: reason}, strategy.Range{Absent: reason}
}

// Rules are rules by the names that recipe files use.
type Rules map[string]Rule
