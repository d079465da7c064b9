package recipes

import (
	"errors"
	"fmt"
	"github.com/gpurun/gpurun/recipes/deepspeed"
	"github.com/gpurun/gpurun/recipes/format"
	"slices"

	"github.com/gpurun/gpurun/strategy"
)

// Apply returns what the original command has to become so that the job runs
// with the whole plan. New files are to be written under dir, as Change tells. A
// knob that already has its value is left as it is written.
func (r Recipe) Apply(cmd Command, plan strategy.Plan, at Topology, dir string) (Change, error) {
	d := format.NewDraft(r.Recipe, cmd)
	current, ranges, err := r.read(d, at)
	if err != nil {
		return Change{}, err
	}
	at = d.At
	if err := settle(d, current, plan); err != nil {
		return Change{}, err
	}
	for _, k := range strategy.Knobs {
		value, wanted := plan[k]
		if !wanted || value == current[k] || ranges[k].Scope == strategy.ScopeDerived || r.Knobs[k].Global != nil {
			continue
		}
		if err := turn(d, k, r.Knobs[k], value, ranges[k]); err != nil {
			return Change{}, fmt.Errorf("set %s to %s: %w", k, value, err)
		}
	}
	if err := applyGlobal(d, current, current.With(plan), ranges[strategy.GradientAccumulationSteps]); err != nil {
		return Change{}, err
	}
	if err := scale(d, current, current.With(plan)); err != nil {
		return Change{}, err
	}
	for _, name := range r.Rules {
		if apply := rules[name].Apply; apply != nil {
			if err := apply(d, at, current, current.With(plan)); err != nil {
				return Change{}, err
			}
		}
	}
	return d.Finish(dir)
}

// turn sets one knob at all its places.
func turn(d *format.Draft, k strategy.Knob, knob format.Knob, value strategy.Value, allowed strategy.Range) error {
	switch {
	case allowed.Absent != "":
		return errors.New(allowed.Absent)
	case !allowed.Allows(value):
		return errors.New(allowance(allowed))
	case k == strategy.Allocator:
		setAllocator(d)
		return nil
	}
	word := value
	if n, whole := value.Number(); whole && k != strategy.GradientAccumulationSteps && knob.Scope == strategy.ScopeGlobal {
		word = strategy.Number(n * d.At.Sharing())
	}
	places, weaker, reason := written(d, k, knob)
	if reason != "" {
		return errors.New(reason)
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
	if slices.Contains(deepspeed.Created, k) && d.Recipe.Creation != nil && !d.Given(knob) {
		return nil // they come with the new configuration
	}
	return knob.WriteAlso(d, value)
}

// allowance says what a knob can be set to.
func allowance(r strategy.Range) string {
	switch {
	case r.Values != nil:
		return "it can be " + format.Join(r.Values)
	case r.Max > 0:
		return fmt.Sprintf("it can be %d to %d", r.Min, r.Max)
	}
	return fmt.Sprintf("it can be %d or more", r.Min)
}
