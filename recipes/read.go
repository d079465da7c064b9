package recipes

import (
	"errors"
	"fmt"

	"github.com/gpurun/gpurun/recipes/deepspeed"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// Read returns the plan that the command stands for, and what can be done with
// each knob. Every knob has a range; one that cannot be turned says why. All
// values that cannot be understood are reported together.
func (r Recipe) Read(cmd Command, at Topology) (strategy.Plan, map[strategy.Knob]strategy.Range, error) {
	return r.read(format.NewDraft(r.Recipe, cmd), at)
}

func (r Recipe) read(d *format.Draft, at Topology) (strategy.Plan, map[strategy.Knob]strategy.Range, error) {
	plan, ranges := strategy.Plan{}, map[strategy.Knob]strategy.Range{}
	at, err := parallel(d, at)
	if err != nil {
		return nil, nil, err
	}
	d.At = at
	var faults []error
	for _, k := range strategy.Knobs {
		if k == strategy.Allocator {
			continue
		}
		knob, known := r.Knobs[k]
		if !known {
			ranges[k] = strategy.Range{Absent: r.unknown()}
			continue
		}
		value, err := current(d, k, knob)
		if misread := (*misreadConfig)(nil); errors.As(err, &misread) {
			ranges[k] = strategy.Range{Absent: misread.Error()}
			continue
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", k, err))
		}
		if value != "" {
			plan[k] = value
		}
		ranges[k] = rangeOf(d, k, knob, value)
	}
	readAllocator(d, plan, ranges)
	if len(faults) == 0 {
		if err := readGlobal(d, plan, ranges); err != nil {
			faults = append(faults, err)
		}
	}
	if len(faults) == 0 {
		for _, name := range r.Rules {
			if read := rules[name].Read; read != nil {
				if err := read(d, at, plan, ranges); err != nil {
					faults = append(faults, err)
				}
			}
		}
	}
	if len(faults) == 0 {
		restrict(d, plan, ranges)
	}
	return plan, ranges, errors.Join(faults...)
}

// unknown is the reason why a knob that the recipe does not have cannot be turned.
func (r Recipe) unknown() string {
	if r.Name == "" {
		return "no [knobs] entry says where it is kept"
	}
	return "the recipe " + r.Name + " does not say where it is kept"
}

// current reads a knob's value from all its places, which must agree.
func current(d *format.Draft, k strategy.Knob, knob format.Knob) (strategy.Value, error) {
	if knob.Absent != "" || knob.Scope == strategy.ScopeDerived || knob.Given && !d.Given(knob) {
		return "", nil
	}
	value, from := strategy.Value(""), format.Place{}
	for _, p := range d.Places(knob) {
		v, found, err := p.Get(d, k)
		if errors.Is(err, format.ErrAuto) && knob.Alternatives {
			return "", nil // the framework's own, whatever weaker places say
		}
		if errors.Is(err, format.ErrAuto) {
			continue
		}
		if err != nil && deepspeed.Holds(d, p) {
			return "", &misreadConfig{fmt.Errorf("%s: %w", p, err)}
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", p, err)
		}
		if v, err = perRank(d, k, knob, p, v, found); err != nil {
			return "", err
		}
		switch {
		case !found:
		case knob.Alternatives:
			return v, nil
		case value == "":
			value, from = v, p
		case v != value:
			return "", fmt.Errorf("%s says %s, but %s says %s: make them agree", from, value, p, v)
		}
	}
	if value == "" {
		value, _ = d.DefaultOf(k, knob)
	}
	return value, nil
}

// A misreadConfig is a setting of a DeepSpeed configuration that gpurun does not
// understand. DeepSpeed may: the setting is left alone.
type misreadConfig struct{ error }

func (e *misreadConfig) Unwrap() error { return e.error }

// perRank is a place's batch on one rank, where the place counts all of them.
func perRank(d *format.Draft, k strategy.Knob, knob format.Knob, p format.Place, v strategy.Value, found bool) (strategy.Value, error) {
	n, whole := v.Number()
	if !found || !whole || k == strategy.GradientAccumulationSteps || knob.Scope != strategy.ScopeGlobal {
		return v, nil
	}
	if ranks := d.At.Sharing(); n%ranks != 0 {
		return "", fmt.Errorf("%s: %d does not divide among %d data-parallel ranks", p, n, ranks)
	}
	return strategy.Number(n / d.At.Sharing()), nil
}

// rangeOf tells what can be done with a knob.
func rangeOf(d *format.Draft, k strategy.Knob, knob format.Knob, value strategy.Value) strategy.Range {
	if knob.Absent != "" {
		return strategy.Range{Absent: knob.Absent, Follows: knob.Follows}
	}
	if len(knob.Places) > 0 && len(d.Places(knob)) == 0 {
		return strategy.Range{Absent: knob.Places[0].Versions.Outside(d.Original.Packages) + " has no " + knob.Places[0].String()}
	}
	if knob.Given && !d.Given(knob) {
		return strategy.Range{Absent: "the command has no " + knob.Places[0].Needs()}
	}
	places, _, reason := written(d, k, knob)
	if reason == "" && value == "" {
		_, reason = d.DefaultOf(k, knob)
	}
	if reason != "" {
		return strategy.Range{Absent: reason}
	}
	if k.Whole() {
		scope := knob.Scope
		if k != strategy.GradientAccumulationSteps {
			scope = "" // plans count each rank
		}
		return strategy.Range{Min: max(knob.Min, format.Least(k)), Max: knob.Max, Scope: scope, Confirm: knob.Confirm}
	}
	values, reason := possible(d, knob, places, format.Writable(k, places), value)
	if reason != "" {
		return strategy.Range{Absent: reason}
	}
	return strategy.Range{Values: values, Weights: knob.Weights, Confirm: knob.Confirm}
}

// possible are the values whose arguments the job's parser has. Where no other than
// the current one is left, reason says why.
func possible(d *format.Draft, knob format.Knob, places []format.Place, values []strategy.Value, current strategy.Value) (left []strategy.Value, reason string) {
	others := 0
	for _, v := range values {
		why := ""
		if v != current {
			if why = knob.Lacking(d, places, v); why == "" {
				others++
			} else if reason == "" {
				reason = why
			}
		}
		if why == "" {
			left = append(left, v)
		}
	}
	if reason == "" {
		return values, ""
	}
	if others > 0 {
		reason = ""
	}
	return left, reason
}
