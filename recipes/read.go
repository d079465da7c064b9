package recipes

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// Read returns the command's plan, and the range of each knob. Every knob has a range; if it
// cannot be changed, the range has the reason. All values that cannot be understood are reported
// together.
func (r Recipe) Read(cmd Command, at Topology) (strategy.Plan, map[strategy.Knob]strategy.Range, error) {
	return r.read(format.NewDraft(r.Recipe, cmd), at)
}

func (r Recipe) read(d *format.Draft, at Topology) (strategy.Plan, map[strategy.Knob]strategy.Range, error) {
	plan, ranges := strategy.Plan{}, map[strategy.Knob]strategy.Range{}
	var err error
	if d.At, err = parallel(d, at); err != nil {
		return nil, nil, err
	}
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
		if len(knob.Likely) > 0 {
			ranges[k] = likely(d, k, knob)
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
	if len(faults) > 0 {
		return plan, ranges, errors.Join(faults...)
	}
	if err := readGlobal(d, plan, ranges); err != nil {
		return plan, ranges, err
	}
	for _, name := range r.Rules {
		if read := rules[name].Read; read != nil {
			if err := read(d, plan, ranges); err != nil {
				faults = append(faults, err)
			}
		}
	}
	if len(faults) == 0 {
		restrict(d, plan, ranges)
	}
	return plan, ranges, errors.Join(faults...)
}

// likely returns the range of a knob that only names suggest: its value is the process's to report.
func likely(d *format.Draft, k strategy.Knob, knob format.Knob) strategy.Range {
	r := strategy.Range{Reported: true}
	if k.Whole() {
		r.Min = format.Least(k)
	}
	for _, one := range knob.Likely {
		found := strategy.Likely{Name: one.Name, Key: one.Key, Choices: one.Choices, All: one.All}
		if len(one.Knob.Places) > 0 {
			if value, err := current(d, k, one.Knob); err == nil {
				found.Value = value
			}
		}
		r.Likely = append(r.Likely, found)
	}
	return r
}

// Using returns the recipe with the settings by which a plan changes likely knobs. ranks is the largest number of
// ranks that one of them counts together.
func (r Recipe) Using(by strategy.Arguments) (chosen Recipe, ranks int) {
	r.Knobs = maps.Clone(r.Knobs)
	for k, argument := range by {
		i := slices.IndexFunc(r.Knobs[k].Likely, func(one format.LikelyPlace) bool { return one.Name == argument.Name })
		if i < 0 {
			continue
		}
		one := r.Knobs[k].Likely[i]
		if argument.Times > 1 {
			one.Knob.Scope, ranks = strategy.ScopeGlobal, max(ranks, argument.Times)
		}
		r.Knobs[k], r.Grammar = one.Knob, one.Grammar
	}
	return r, ranks
}

// unknown is the reason why a knob that the recipe does not have cannot be changed.
func (r Recipe) unknown() string {
	if r.Name == "" {
		return "no [knobs] entry for it"
	}
	return "the recipe " + r.Name + " has no entry for it"
}

// Parallel completes a topology by the model parallelism in the command. If the caller does not
// know how many ranks see different samples, this is the number of ranks divided by the product
// of the recipe's sizes.
func (r Recipe) Parallel(cmd Command, at Topology) (Topology, error) {
	return parallel(format.NewDraft(r.Recipe, cmd), at)
}

func parallel(d *format.Draft, at Topology) (Topology, error) {
	if at.Plain || at.DataParallel > 0 && at.DataParallel != at.Ranks {
		return at, nil
	}
	product := 1
	for _, places := range d.Recipe.Model {
		word, from, err := d.First(places)
		if err != nil {
			return at, err
		}
		if word == nil {
			continue
		}
		n, err := strconv.Atoi(fmt.Sprint(word))
		if err != nil {
			return at, fmt.Errorf("%s: %v is not a whole number", from, word)
		}
		product *= max(n, 1) // 0 and -1 leave it to the framework
	}
	ranks := max(at.Ranks, 1)
	if ranks%product != 0 {
		return at, fmt.Errorf("the model is spread over %d ranks, which does not divide %d", product, ranks)
	}
	at.DataParallel = ranks / product
	return at, nil
}

// current reads a knob's value from all its places, which must agree.
func current(d *format.Draft, k strategy.Knob, knob format.Knob) (strategy.Value, error) {
	if knob.Absent != "" {
		return knob.Fixed, nil
	}
	if knob.Scope == strategy.ScopeDerived || knob.Given && !d.Given(knob) {
		return "", nil
	}
	value, from, autos := strategy.Value(""), format.Place{}, 0
	places := d.Places(knob)
	for _, p := range places {
		v, found, err := p.Get(d, k)
		switch {
		case errors.Is(err, format.ErrAuto) && knob.Alternatives:
			return knob.Fixed, nil // the framework's own, for any values of weaker places, unless the source says it
		case errors.Is(err, format.ErrAuto):
			autos++
			continue
		case err != nil && inDeepSpeedConfig(d, p):
			return "", &misreadConfig{fmt.Errorf("%s: %w", p, err)}
		case err != nil:
			return "", fmt.Errorf("%s: %w", p, err)
		case !found:
			continue
		}
		if n, whole := v.Number(); whole && countsAll(k, knob) {
			ranks := d.At.Sharing()
			if n%ranks != 0 {
				return "", fmt.Errorf("%s: %d does not divide among %d data-parallel ranks", p, n, ranks)
			}
			v = strategy.Number(n / ranks)
		}
		switch {
		case knob.Alternatives:
			return v, nil
		case value == "":
			value, from = v, p
		case v != value:
			return "", fmt.Errorf("%s sets %s, but %s sets %s: make them agree", from, value, p, v)
		}
	}
	if value == "" && autos > 0 && autos == len(places) { // what it is left to, the recipe does not know
		return "", nil
	}
	if value == "" {
		value, _ = d.DefaultOf(k, knob)
	}
	return cmp.Or(value, knob.Fixed), nil
}

// A misreadConfig is a setting of a DeepSpeed configuration that gpurun does not understand.
// DeepSpeed may understand it: the setting is not changed.
type misreadConfig struct{ error }

func (e *misreadConfig) Unwrap() error { return e.error }

// countsAll reports whether the knob's places count all data-parallel ranks, while a plan counts
// one.
func countsAll(k strategy.Knob, knob format.Knob) bool {
	return knob.Scope == strategy.ScopeGlobal && k != strategy.GradientAccumulationSteps
}

// rangeOf returns the allowed changes of a knob.
func rangeOf(d *format.Draft, k strategy.Knob, knob format.Knob, value strategy.Value) strategy.Range {
	if knob.Absent != "" {
		return strategy.Range{Absent: knob.Absent, Follows: knob.Follows, Reported: knob.Reported}
	}
	if len(knob.Places) > 0 && len(d.Places(knob)) == 0 {
		return strategy.Range{Absent: knob.Places[0].Versions.Outside(d.Original.Packages) + " has no " +
			knob.Places[0].String()}
	}
	if knob.Given && !d.Given(knob) {
		needs := knob.Places[0].Needs()
		why := "the command has no " + needs
		if strings.HasPrefix(needs, "-") { // --deepspeed alone names none
			why = "the command names no file by " + needs
		}
		return strategy.Range{Absent: why, Reported: knob.Reported}
	}
	places, _, reason := written(d, k, knob)
	if reason == "" && value == "" {
		_, reason = d.DefaultOf(k, knob)
	}
	if reason != "" {
		return strategy.Range{Absent: reason, Reported: knob.Reported && value == ""}
	}
	if k.Whole() {
		scope := knob.Scope
		if k != strategy.GradientAccumulationSteps {
			scope = "" // plans count each rank
		}
		return strategy.Range{Min: max(knob.Min, format.Least(k)), Max: knob.Max, Scope: scope, Reported: knob.Reported &&
			value == ""}
	}
	if k.Share() {
		return strategy.Range{}
	}
	values, reason := possible(d, knob, places, format.Writable(k, places), value)
	if reason != "" {
		return strategy.Range{Absent: reason}
	}
	return strategy.Range{Values: values, Weights: knob.Weights}
}

// possible lists the values whose arguments the job's parser has, including the current one. The
// reason explains why there is no other.
func possible(d *format.Draft, knob format.Knob, places []format.Place, values []strategy.Value,
	current strategy.Value) (left []strategy.Value, reason string) {
	others := 0
	for _, v := range values {
		why := ""
		if v != current {
			why = knob.Lacking(d, places, v)
		}
		switch {
		case why == "":
			left = append(left, v)
			if v != current {
				others++
			}
		case reason == "":
			reason = why
		}
	}
	switch {
	case reason == "":
		return values, ""
	case others > 0:
		return left, ""
	}
	return left, reason
}

// restrict removes the values that the user's other settings rule out, and fills in bounds that
// are other knobs' values.
func restrict(d *format.Draft, plan strategy.Plan, ranges map[strategy.Knob]strategy.Range) {
	decided(d, plan, ranges)
	for _, k := range strategy.Knobs {
		knob, r := d.Recipe.Knobs[k], ranges[k]
		if r.Absent != "" {
			continue
		}
		for _, c := range d.Unless(knob, plan) {
			if c.Values == nil {
				r = strategy.Range{Absent: c.Reason, Reported: r.Reported}
				if c.Unknown || d.Recipe.Creation != nil && slices.Contains(createdKnobs, k) && !d.Given(knob) {
					delete(plan, k) // the other setting decides about the parts of a new configuration
				}
				break
			}
			r.Values = slices.DeleteFunc(slices.Clone(r.Values),
				func(v strategy.Value) bool { return v != plan[k] && slices.Contains(c.Values, v) })
		}
		if n, known := plan.Number(knob.MinOf); known && r.Absent == "" {
			r.Min = max(r.Min, n)
		}
		ranges[k] = r
	}
}

// RuledOut reports whether a setting of the user prevents a change of a knob by any means: FSDP's
// own checkpointing, a DeepSpeed configuration with a precision.
func (r Recipe) RuledOut(cmd Command, at Topology, plan strategy.Plan, k strategy.Knob) bool {
	d := format.NewDraft(r.Recipe, cmd)
	d.At = at
	return slices.ContainsFunc(d.Unless(r.Knobs[k], plan), func(c format.Condition) bool { return c.Values == nil })
}

// written lists the places that a change of the knob writes: all of them, or of alternatives the
// strongest writable one, which overrides the weaker ones after it. The reason is why there is
// none.
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
		_, found, err := p.Read(d)
		if p.There && !found && err == nil {
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
			return nil, nil, why // the value of a weaker place would not count
		}
		if reason == "" {
			reason = why
		}
	}
	return nil, nil, reason
}

// unwritable is the reason why a place of the knob cannot have another value.
func unwritable(d *format.Draft, knob format.Knob, p format.Place) string {
	if why := p.Unwritable(d); why != "" || knob.Own || knob.Given && !knob.Alternatives {
		return why
	}
	return p.Lacking(d)
}
