package recipes

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gpurun/gpurun/strategy"
)

// Apply returns what the original command has to become so that the job runs
// with the whole plan. New files are to be written under dir, as Change tells. A
// knob that already has its value is left as it is written.
func (r Recipe) Apply(cmd Command, plan strategy.Plan, at Topology, dir string) (Change, error) {
	d := newDraft(r, cmd)
	current, ranges, err := r.read(d, at)
	if err != nil {
		return Change{}, err
	}
	at = d.at
	if err := d.settle(current, plan); err != nil {
		return Change{}, err
	}
	for _, k := range strategy.Knobs {
		value, wanted := plan[k]
		if !wanted || value == current[k] || ranges[k].Scope == strategy.ScopeDerived || r.Knobs[k].Global != nil {
			continue
		}
		if err := d.turn(k, r.Knobs[k], value, ranges[k]); err != nil {
			return Change{}, fmt.Errorf("set %s to %s: %w", k, value, err)
		}
	}
	if err := d.applyGlobal(current, current.With(plan), ranges[strategy.GradientAccumulationSteps]); err != nil {
		return Change{}, err
	}
	if err := d.scale(current, current.With(plan)); err != nil {
		return Change{}, err
	}
	for _, name := range r.Rules {
		if apply := rules[name].apply; apply != nil {
			if err := apply(d, at, current, current.With(plan)); err != nil {
				return Change{}, err
			}
		}
	}
	return d.finish(dir)
}

// turn sets one knob at all its places.
func (d *draft) turn(k strategy.Knob, knob Knob, value strategy.Value, allowed strategy.Range) error {
	switch {
	case allowed.Absent != "":
		return errors.New(allowed.Absent)
	case !allowed.Allows(value):
		return errors.New(allowance(allowed))
	case k == strategy.Allocator:
		d.setAllocator()
		return nil
	}
	written := value
	if n, whole := value.Number(); whole && k != strategy.GradientAccumulationSteps && knob.Scope == strategy.ScopeGlobal {
		written = strategy.Number(n * d.at.dataParallel())
	}
	places, weaker, reason := d.written(k, knob)
	if reason != "" {
		return errors.New(reason)
	}
	absence := d.absence(k, knob, weaker)
	for _, p := range places {
		if knob.Given && !knob.Alternatives && !d.present(p) {
			continue
		}
		if err := d.set(k, p, written, absence); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	if slices.Contains(created, k) && d.recipe.Creation != nil && !d.given(knob) {
		return nil // they come with the new configuration
	}
	return d.also(knob, value)
}

// allowance says what a knob can be set to.
func allowance(r strategy.Range) string {
	switch {
	case r.Values != nil:
		return "it can be " + join(r.Values)
	case r.Max > 0:
		return fmt.Sprintf("it can be %d to %d", r.Min, r.Max)
	}
	return fmt.Sprintf("it can be %d or more", r.Min)
}
