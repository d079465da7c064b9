package recipes

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/gpurun/gpurun/strategy"
)

// FilesNamed lists the configuration files, as written, that must be in
// cmd.Files before Read. A file can name another one: ask again once they are
// loaded, until nothing new is asked for. A file that does not exist is left
// out, and Read says so where it matters.
func (r Recipe) FilesNamed(cmd Command) []string {
	d := newDraft(r, cmd)
	names := map[string]bool{}
	if d.sole != "" {
		names[d.sole] = true
	}
	for _, p := range r.allPlaces() {
		if p.Assigned != "" {
			for _, file := range d.pythonFiles() {
				names[file] = true
			}
		}
		if !p.inFile() {
			continue
		}
		if file, _, found := d.file(p); found && !inline(file) {
			names[file] = true
		}
		for _, via := range p.Via { // the files on the way to it
			for in := via.In; in != nil; in = in.In {
				if file, found := d.follow(*in); found {
					names[file] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// allPlaces are all places that the recipe looks at.
func (r Recipe) allPlaces() []Place {
	all := slices.Concat(r.Model...)
	settings := slices.Concat(r.OwnOOM, r.Relaunch)
	for _, knob := range r.Knobs {
		all = append(append(all, knob.Places...), knob.Scales...)
		if knob.Global != nil {
			all = append(all, knob.Global.Places...)
		}
		for _, c := range knob.Unless {
			all = append(all, c.Place)
		}
		settings = append(settings, knob.Also...)
	}
	for _, places := range r.Resume.Values {
		all = append(all, places...)
	}
	for _, s := range settings {
		all = append(all, s.Place)
	}
	return all
}

// Read returns the plan that the command stands for, and what can be done with
// each knob. Every knob has a range; one that cannot be turned says why. All
// values that cannot be understood are reported together.
func (r Recipe) Read(cmd Command, at Topology) (strategy.Plan, map[strategy.Knob]strategy.Range, error) {
	return r.read(newDraft(r, cmd), at)
}

func (r Recipe) read(d *draft, at Topology) (strategy.Plan, map[strategy.Knob]strategy.Range, error) {
	plan, ranges := strategy.Plan{}, map[strategy.Knob]strategy.Range{}
	at, err := d.parallel(at)
	if err != nil {
		return nil, nil, err
	}
	d.at = at
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
		value, err := d.current(k, knob)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", k, err))
		}
		if value != "" {
			plan[k] = value
		}
		ranges[k] = d.rangeOf(k, knob)
	}
	d.readAllocator(plan, ranges)
	if len(faults) == 0 {
		if err := d.readGlobal(plan, ranges); err != nil {
			faults = append(faults, err)
		}
	}
	if len(faults) == 0 {
		for _, name := range r.Rules {
			if read := rules[name].read; read != nil {
				if err := read(d, at, plan, ranges); err != nil {
					faults = append(faults, err)
				}
			}
		}
	}
	if len(faults) == 0 {
		d.restrict(plan, ranges)
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
func (d *draft) current(k strategy.Knob, knob Knob) (strategy.Value, error) {
	if knob.Absent != "" || knob.Scope == strategy.ScopeDerived || knob.Given && !d.given(knob) {
		return "", nil
	}
	value, from := strategy.Value(""), Place{}
	for _, p := range d.places(knob) {
		v, found, err := d.get(k, p)
		if errors.Is(err, errAuto) && knob.Alternatives {
			return "", nil // the framework's own, whatever weaker places say
		}
		if errors.Is(err, errAuto) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", p, err)
		}
		if v, err = d.perRank(k, knob, p, v, found); err != nil {
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
		return knob.Default, nil
	}
	return value, nil
}

// perRank is a place's batch on one rank, where the place counts all of them.
func (d *draft) perRank(k strategy.Knob, knob Knob, p Place, v strategy.Value, found bool) (strategy.Value, error) {
	n, whole := v.Number()
	if !found || !whole || k == strategy.GradientAccumulationSteps || knob.Scope != strategy.ScopeGlobal {
		return v, nil
	}
	if ranks := d.at.dataParallel(); n%ranks != 0 {
		return "", fmt.Errorf("%s: %d does not divide among %d data-parallel ranks", p, n, ranks)
	}
	return strategy.Number(n / d.at.dataParallel()), nil
}

// given reports whether the command has one of the knob's places.
func (d *draft) given(knob Knob) bool {
	return slices.ContainsFunc(d.places(knob), d.present)
}

// rangeOf tells what can be done with a knob.
func (d *draft) rangeOf(k strategy.Knob, knob Knob) strategy.Range {
	if knob.Absent != "" {
		return strategy.Range{Absent: knob.Absent}
	}
	if len(knob.Places) > 0 && len(d.places(knob)) == 0 {
		return strategy.Range{Absent: knob.Places[0].Versions.outside(d.original.Packages) + " has no " + knob.Places[0].String()}
	}
	if knob.Given && !d.given(knob) {
		return strategy.Range{Absent: "the command has no " + knob.lacks()}
	}
	places, _, reason := d.written(k, knob)
	if reason != "" {
		return strategy.Range{Absent: reason}
	}
	if k.Whole() {
		scope := knob.Scope
		if k != strategy.GradientAccumulationSteps {
			scope = "" // plans count each rank
		}
		return strategy.Range{Min: max(knob.Min, least(k)), Max: knob.Max, Scope: scope}
	}
	return strategy.Range{Values: writable(k, places), Weights: knob.Weights}
}

// lacks names the argument that would make the knob available.
func (knob Knob) lacks() string {
	if p := knob.Places[0]; p.inFile() && len(p.Via) > 0 {
		return p.vias()
	}
	return knob.Places[0].String()
}

// writable are the words that every one of the places has, in vocabulary order.
func writable(k strategy.Knob, places []Place) []strategy.Value {
	order := strategy.Vocabulary(k)
	var common []strategy.Value
	for i, p := range places {
		own := p.writable(order)
		if i == 0 {
			common = own
			continue
		}
		common = slices.DeleteFunc(common, func(v strategy.Value) bool { return !slices.Contains(own, v) })
	}
	return common
}

// writable are the values that a place has words for; an open vocabulary comes
// in alphabetical order.
func (p Place) writable(order []strategy.Value) []strategy.Value {
	var own []strategy.Value
	switch {
	case p.Choose != nil:
		own = slices.Sorted(maps.Keys(p.Choose))
	case p.Pick != nil:
		own = slices.Sorted(maps.Keys(p.Pick))
	case p.Values != nil:
		own = slices.Sorted(maps.Keys(p.Values))
	default:
		own = slices.Clone(order)
	}
	if order == nil {
		return own
	}
	slices.SortFunc(own, func(a, b strategy.Value) int { return slices.Index(order, a) - slices.Index(order, b) })
	return own
}
