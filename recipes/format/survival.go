package format

import (
	"github.com/gpurun/gpurun/strategy"
)

// A Survival says between which values of a knob a checkpoint survives a change.
type Survival struct {
	Knob strategy.Knob
	// Families are sets of values; inside one, the checkpoint can be loaded. None:
	// no change of the knob can be.
	Families [][]strategy.Value
	Reason   string
}
