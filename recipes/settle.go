package recipes

import (
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// settle makes the settings that every attempt, and those that every changed
// command needs.
func settle(d *format.Draft, current, plan strategy.Plan) error {
	for _, s := range d.Recipe.OwnOOM {
		on, err := s.TurnedOn(d)
		if err != nil {
			return err
		}
		if !on {
			continue
		}
		if err := s.Write(d); err != nil {
			return err
		}
	}
	if len(current.Changed(current.With(plan))) == 0 {
		return nil
	}
	for _, s := range d.Recipe.Relaunch {
		if s.Place.Lacking(d) != "" {
			continue
		}
		if err := s.Write(d); err != nil {
			return err
		}
	}
	return nil
}
