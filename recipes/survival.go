package recipes

import "github.com/gpurun/gpurun/strategy"

// A Survival says between which values of a knob a checkpoint survives a change.
type Survival struct {
	Knob strategy.Knob
	// Families are sets of values; inside one, the checkpoint can be loaded. None:
	// no change of the knob can be.
	Families [][]strategy.Value
	Reason   string
}

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
