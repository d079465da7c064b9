package recipes

import (
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// RuledOut reports whether a setting of the user's keeps a knob from being turned, by
// whatever means: FSDP's own checkpointing, a DeepSpeed configuration with a precision.
func (r Recipe) RuledOut(cmd Command, at Topology, plan strategy.Plan, k strategy.Knob) bool {
	d := format.NewDraft(r.Recipe, cmd)
	d.At = at
	knob := r.Knobs[k]
	for _, c := range knob.Unless {
		if c.Values == nil && !(c.Missing && d.Given(knob)) && c.Holds(d, plan) {
			return true
		}
	}
	return false
}
