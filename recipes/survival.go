package recipes

import (
	"fmt"

	"github.com/gpurun/gpurun/strategy"
)

// Families returns the sets of a knob's values inside which a checkpoint survives
// a change, and why it does not survive others. It is false for a knob that
// checkpoints do not depend on.
func (r Recipe) Families(k strategy.Knob) (families [][]strategy.Value, reason string, fragile bool) {
	for _, s := range r.Checkpoint {
		if s.Knob == k {
			return s.Families, s.Reason, true
		}
	}
	return nil, "", false
}

// Breaks says why a checkpoint that was written under one plan cannot be resumed
// under another; empty where nothing is known to be in the way.
func (r Recipe) Breaks(from, to strategy.Plan) string {
	for _, k := range strategy.Knobs {
		for _, s := range r.Checkpoint {
			a, known := from[k]
			b, also := to[k]
			if s.Knob == k && known && also && !s.Survives(a, b) {
				return fmt.Sprintf("a checkpoint written with %s %s cannot be resumed with %s: %s", k.Short(), a, b, s.Reason)
			}
		}
	}
	return ""
}
