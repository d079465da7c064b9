package recipes

import "github.com/gpurun/gpurun/strategy"

// Turned lists the knobs that the recipe can turn, in the order of strategy.Knobs.
func (r Recipe) Turned() []strategy.Knob {
	knobs := []strategy.Knob{}
	for _, k := range strategy.Knobs {
		if knob, known := r.Knobs[k]; known && knob.Absent == "" {
			knobs = append(knobs, k)
		}
	}
	return knobs
}
