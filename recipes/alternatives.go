package recipes

import (
	"fmt"

	"github.com/gpurun/gpurun/strategy"
)

// written are the places that a change of the knob goes to: all of them, or of
// alternatives the strongest that can be written, which overrides the weaker
// ones behind it. Where there is none, the reason says why.
func (d *draft) written(k strategy.Knob, knob Knob) (places, weaker []Place, reason string) {
	places = d.places(knob)
	if !knob.Alternatives {
		for _, p := range places {
			if why := d.unwritable(p); why != "" {
				return nil, nil, why
			}
		}
		return places, nil, ""
	}
	for i, p := range places {
		if p.There && !d.filledIn(p) {
			continue
		}
		why := d.unwritable(p)
		if _, _, named := d.file(p); why == "" && p.inFile() && !named {
			why = fmt.Sprintf("the command names no file that holds the %s: it needs %s", p, p.vias())
		}
		if why == "" {
			return places[i : i+1], places[i+1:], ""
		}
		if _, found, err := d.get(k, p); found || err != nil {
			return nil, nil, why // what a weaker place said would not count
		}
		if reason == "" {
			reason = why
		}
	}
	return nil, nil, reason
}

// filledIn reports whether the place has a value, understood or not.
func (d *draft) filledIn(p Place) bool {
	_, found, err := d.raw(p)
	return found || err != nil
}

// unwritable is the reason why what a place holds cannot be changed, empty if it can.
func (d *draft) unwritable(p Place) string {
	file, via, found := d.file(p)
	switch {
	case p.Assigned != "":
		return fmt.Sprintf("the %s is Python, which is read and not changed", p)
	case p.inFile() && found && via == (Via{}) && !d.names(file):
		return file + " is named by no argument and no variable of the command, so that a changed copy could not be told to the job: " +
			"say how with via = { arg = … } or via = { env = … }"
	}
	return ""
}

// absence is what the job does without the place that is written: what weaker
// ones say, else the knob's default.
func (d *draft) absence(k strategy.Knob, knob Knob, weaker []Place) strategy.Value {
	for _, p := range weaker {
		if v, found, err := d.get(k, p); found && err == nil {
			return v
		}
	}
	return knob.Default
}
