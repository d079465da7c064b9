package format

import (
	"slices"

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

// Survives reports whether a checkpoint written with one value loads with another.
func (s Survival) Survives(from, to strategy.Value) bool {
	return from == to || slices.ContainsFunc(s.Families, func(family []strategy.Value) bool {
		return slices.Contains(family, from) && slices.Contains(family, to)
	})
}
