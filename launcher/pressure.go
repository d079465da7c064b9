package launcher

import (
	"slices"

	"github.com/gpurun/gpurun/strategy"
)

// mostPressed bounds the warnings about memory pressure in an attempt.
const mostPressed = 8

// warnOfPressure warns of memory pressure: once for each rank, and once more when its process cannot end it.
func (w *watch) warnOfPressure() {
	for _, r := range w.evidence.Pressure() {
		known := slices.ContainsFunc(w.pressure, func(o strategy.RankPressure) bool {
			return o.Rank == r.Rank && o.Why == r.Why
		})
		if known || len(w.pressure) == mostPressed {
			continue
		}
		w.pressure = append(w.pressure, r)
		job := w.launcher.Job
		ends := strategy.EndsPressure(w.launcher.Policy, job, w.evidence.Plan.With(w.evidence.Observed(job)),
			strategy.Inventory{Accelerator: w.launcher.Accelerator})
		w.notice("warning: " + r.Sentence(ends))
	}
}

// pressureWords are the sentences about an attempt's memory pressure.
func pressureWords(e strategy.Evidence) (all []string) {
	for _, r := range e.Pressure() {
		all = append(all, r.Sentence(""))
	}
	return all[:min(len(all), mostPressed)]
}
