package recipes

import (
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// written are the places that a change of the knob goes to: all of them, or of
// alternatives the strongest that can be written, which overrides the weaker
// ones behind it. Where there is none, the reason says why.
func written(d *format.Draft, k strategy.Knob, knob format.Knob) (places, weaker []format.Place, reason string) {
	places = d.Places(knob)
	if !knob.Alternatives {
		for _, p := range places {
			if why := unwritable(d, knob, p); why != "" {
				return nil, nil, why
			}
		}
		return places, nil, ""
	}
	for i, p := range places {
		if p.There && !filledIn(d, p) {
			continue
		}
		why := unwritable(d, knob, p)
		if why == "" {
			why = p.Missing(d)
		}
		if why == "" {
			return places[i : i+1], places[i+1:], ""
		}
		if _, found, err := p.Get(d, k); found || err != nil {
			return nil, nil, why // what a weaker place said would not count
		}
		if reason == "" {
			reason = why
		}
	}
	return nil, nil, reason
}

// filledIn reports whether the place has a value, understood or not.
func filledIn(d *format.Draft, p format.Place) bool {
	_, found, err := p.Read(d)
	return found || err != nil
}

// absenceOf is what the job does without the place that is written: what weaker
// ones say, else the knob's default.
func absenceOf(d *format.Draft, k strategy.Knob, knob format.Knob, weaker []format.Place) strategy.Value {
	for _, p := range weaker {
		if v, found, err := p.Get(d, k); found && err == nil {
			return v
		}
	}
	value, _ := d.DefaultOf(k, knob)
	return value
}

// unwritable is why a place of the knob cannot hold another value.
func unwritable(d *format.Draft, knob format.Knob, p format.Place) string {
	if why := p.Unwritable(d); why != "" || knob.Own || knob.Given && !knob.Alternatives {
		return why
	}
	return p.Lacking(d)
}
