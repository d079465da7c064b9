package format

import (
	"github.com/gpurun/gpurun/strategy"
)

// A Rule is what binds settings of one framework together, beyond what a recipe
// file can say. Recipe files name their rules.
type Rule struct {
	// Shape completes a recipe that was read.
	Shape func(r *Recipe)
	// Read completes what was read from the places of the single knobs.
	Read func(d *Draft, at Topology, plan strategy.Plan, ranges map[strategy.Knob]strategy.Range) error
	// Apply completes what was set at them; plan holds every knob.
	Apply func(d *Draft, at Topology, old, plan strategy.Plan) error
	// Checkpoint edits files of a checkpoint, by their name in it, that hold
	// settings of their own.
	Checkpoint map[string]func(text []byte, plan strategy.Plan) ([]byte, error)
}

// Rules are rules by the names that recipe files use.
type Rules map[string]Rule
