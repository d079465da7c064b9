package recipes

import "github.com/gpurun/gpurun/strategy"

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
