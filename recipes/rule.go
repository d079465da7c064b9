package recipes

import "github.com/gpurun/gpurun/strategy"

// A rule is what binds several settings of one framework together, beyond what a
// recipe file can say. Recipe files name their rules.
type rule struct {
	// read completes what was read from the places of the single knobs.
	read func(d *draft, at Topology, plan strategy.Plan, ranges map[strategy.Knob]strategy.Range) error
	// apply completes what was set at them; plan holds every knob.
	apply func(d *draft, at Topology, old, plan strategy.Plan) error
	// checkpoint edits files of a checkpoint, by their name in it, that hold
	// settings of their own.
	checkpoint map[string]func(text []byte, plan strategy.Plan) ([]byte, error)
}

// rules by the name that recipe files use.
var rules = map[string]rule{
	dsConfigRule:              deepspeed,
	"trainer-state":           trainerState,
	"accelerate-accumulation": launchedAccumulation,
}
