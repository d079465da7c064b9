package recipes

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gpurun/gpurun/strategy"

	"github.com/gpurun/gpurun/recipes/format"
)

// Apply changes the original command so that the job runs with the whole plan. The caller writes
// the new files under dir, as strategy.Command describes. A knob that already has its value is not changed.
func (r Recipe) Apply(cmd Command, plan strategy.Plan, at Topology, dir string) (strategy.Command, error) {
	d, err := r.draft(cmd, plan, at)
	if err != nil {
		return strategy.Command{}, err
	}
	return d.Finish(dir)
}

// Edit changes the original command like Apply. Its files are the changed ones under their own names, for the user
// to change.
func (r Recipe) Edit(cmd Command, plan strategy.Plan, at Topology) (strategy.Command, error) {
	d, err := r.draft(cmd, plan, at)
	if err != nil {
		return strategy.Command{}, err
	}
	return d.Edited()
}

func (r Recipe) draft(cmd Command, plan strategy.Plan, at Topology) (*format.Draft, error) {
	d := format.NewDraft(r.Recipe, cmd)
	old, ranges, err := r.read(d, at)
	if err != nil {
		return nil, err
	}
	next := old.With(plan)
	if err := settle(d, len(old.Changed(next)) > 0); err != nil {
		return nil, err
	}
	for _, k := range strategy.Knobs {
		value, wanted := plan[k]
		if !wanted || value == old[k] || ranges[k].Scope == strategy.ScopeDerived || r.Knobs[k].Global != nil {
			continue
		}
		if err := turn(d, k, value, ranges[k]); err != nil {
			return nil, fmt.Errorf("set %s to %s: %w", k, value, err)
		}
	}
	if err := applyGlobal(d, old, next, ranges[strategy.GradientAccumulationSteps]); err != nil {
		return nil, err
	}
	if err := scale(d, old, next); err != nil {
		return nil, err
	}
	for _, name := range r.Rules {
		if apply := rules[name].Apply; apply != nil {
			if err := apply(d, old, next); err != nil {
				return nil, err
			}
		}
	}
	return d, nil
}

// settle writes the settings of every attempt, and those of every changed command.
func settle(d *format.Draft, changed bool) error {
	for _, s := range d.Recipe.OwnOOM {
		if on, err := s.TurnedOn(d); err != nil {
			return err
		} else if !on {
			continue
		}
		if err := s.Write(d); err != nil {
			return err
		}
	}
	for _, s := range d.Recipe.Relaunch {
		if !changed || s.Place.Lacking(d) != "" {
			continue
		}
		if err := s.Write(d); err != nil {
			return err
		}
	}
	return nil
}

// turn sets one knob at all its places.
func turn(d *format.Draft, k strategy.Knob, value strategy.Value, allowed strategy.Range) error {
	knob := d.Recipe.Knobs[k]
	switch {
	case allowed.Absent != "":
		return errors.New(allowed.Absent)
	case !allowed.Allows(value):
		return errors.New(allowance(allowed))
	case k == strategy.Allocator:
		setAllocator(d)
		return nil
	}
	places, weaker, reason := written(d, k, knob)
	if reason != "" {
		return errors.New(reason)
	}
	word := value
	if n, whole := value.Number(); whole && countsAll(k, knob) {
		word = strategy.Number(n * d.At.Sharing())
	}
	absence := absenceOf(d, k, knob, weaker)
	for _, p := range places {
		if knob.Given && !knob.Alternatives && !p.Present(d) {
			continue
		}
		if err := p.Set(d, k, word, absence); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	if slices.Contains(createdKnobs, k) && d.Recipe.Creation != nil && !d.Given(knob) {
		return nil // they come with the new configuration
	}
	return knob.WriteAlso(d, value)
}

// absenceOf is the job's value without the written place: the value of a weaker place, or else
// the knob's default.
func absenceOf(d *format.Draft, k strategy.Knob, knob format.Knob, weaker []format.Place) strategy.Value {
	for _, p := range weaker {
		if v, found, err := p.Get(d, k); found && err == nil {
			return v
		}
	}
	value, _ := d.DefaultOf(k, knob)
	return value
}

// allowance lists the values that a knob can be set to.
func allowance(r strategy.Range) string {
	switch {
	case r.Values != nil:
		return "it can be " + format.Join(r.Values)
	case r.Max > 0:
		return fmt.Sprintf("it can be %d to %d", r.Min, r.Max)
	}
	return fmt.Sprintf("it can be %d or more", r.Min)
}
