package recipes

import (
	"slices"

	"github.com/gpurun/gpurun/recipes/deepspeed"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// restrict takes away what the user's other settings rule out, and fills in
// bounds that are other knobs' values.
func restrict(d *format.Draft, plan strategy.Plan, ranges map[strategy.Knob]strategy.Range) {
	for _, k := range strategy.Knobs {
		knob, r := d.Recipe.Knobs[k], ranges[k]
		if r.Absent != "" {
			continue
		}
		for _, c := range knob.Unless {
			if c.Missing && d.Given(knob) || !c.Holds(d, plan) {
				continue
			}
			if c.Values == nil {
				r = strategy.Range{Absent: c.Reason}
				if c.Unknown {
					delete(plan, k)
				}
				if d.Recipe.Creation != nil && slices.Contains(deepspeed.Created, k) && !d.Given(knob) {
					delete(plan, k) // it is the other setting's to say
				}
				break
			}
			r.Values = slices.DeleteFunc(slices.Clone(r.Values), func(v strategy.Value) bool { return v != plan[k] && slices.Contains(c.Values, v) })
		}
		if n, known := plan.Number(knob.MinOf); known && r.Absent == "" {
			r.Min = max(r.Min, n)
		}
		ranges[k] = r
	}
}
