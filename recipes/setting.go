package recipes

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/recipes/patch"
	"github.com/gpurun/gpurun/strategy"
)

// settle makes the settings that every attempt, and those that every changed
// command needs.
func (d *draft) settle(current, plan strategy.Plan) error {
	for _, s := range d.recipe.OwnOOM {
		on, err := d.turnedOn(s)
		if err != nil {
			return err
		}
		if !on {
			continue
		}
		if err := d.write(s); err != nil {
			return err
		}
	}
	if len(current.Changed(current.With(plan))) == 0 {
		return nil
	}
	for _, s := range d.recipe.Relaunch {
		if err := d.write(s); err != nil {
			return err
		}
	}
	return nil
}

// turnedOn reports whether the command holds another value than the setting's.
func (d *draft) turnedOn(s Setting) (bool, error) {
	word, found, err := d.settingRaw(s)
	if err != nil || !found {
		return false, err
	}
	return !sameWord(word, s.Value), nil
}

// settingRaw reads a setting's place; a flag that stands alone is true.
func (d *draft) settingRaw(s Setting) (any, bool, error) {
	p := s.Place
	if _, isBool := s.Value.(bool); isBool && p.Arg != "" && d.sole == "" {
		return d.grammarFlag(p)
	}
	return d.raw(p)
}

func (d *draft) grammarFlag(p Place) (any, bool, error) {
	value, found, err := d.grammar.Flag(d.argv, d.spelling(p), p.No)
	return value, found, err
}

// sameWord compares words, truth values by their meaning.
func sameWord(a, b any) bool {
	x, y := fmt.Sprint(a), fmt.Sprint(b)
	if s, known := patch.Truth(x); known {
		if t, also := patch.Truth(y); also {
			return s == t
		}
	}
	return strings.EqualFold(x, y)
}

// write makes one setting.
func (d *draft) write(s Setting) error {
	if s.Place.Versions.outside(d.original.Packages) != "" {
		return nil
	}
	word, found, err := d.settingRaw(s)
	if err != nil {
		return fmt.Errorf("%s: %w", s.Place, err)
	}
	if found && (s.Keep || sameWord(word, s.Value)) {
		return nil
	}
	if truth, isBool := s.Value.(bool); isBool && s.Place.Arg != "" && d.sole == "" {
		// A flag that is there is taken away; what is false by being absent may be
		// true in a file, and is written out.
		d.argv, err = d.grammar.SetFlag(d.argv, d.spelling(s.Place), s.Place.No, truth, !found && !truth)
		return err
	}
	value := s.Value
	if found {
		value = inStyle(word, value)
	}
	return d.put(s.Place, value)
}

// also makes the settings that go with a knob's new value.
func (d *draft) also(knob Knob, value strategy.Value) error {
	for _, s := range knob.Also {
		if s.When != nil && !slices.Contains(s.When, value) {
			continue
		}
		if err := d.write(s); err != nil {
			return err
		}
	}
	return nil
}

// restrict takes away what the user's other settings rule out, and fills in
// bounds that are other knobs' values.
func (d *draft) restrict(plan strategy.Plan, ranges map[strategy.Knob]strategy.Range) {
	for _, k := range strategy.Knobs {
		knob, r := d.recipe.Knobs[k], ranges[k]
		if r.Absent != "" {
			continue
		}
		for _, c := range knob.Unless {
			if c.Missing && d.given(knob) || !d.holdsCondition(c, plan) {
				continue
			}
			if c.Values == nil {
				r = strategy.Range{Absent: c.Reason}
				if c.Repeated || c.Unknown {
					delete(plan, k)
				}
				if d.recipe.Creation != nil && slices.Contains(created, k) && !d.given(knob) {
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

// holdsCondition reports whether the user's command is what a condition names.
func (d *draft) holdsCondition(c Condition, plan strategy.Plan) bool {
	var word any
	if c.Ranks > 0 {
		return d.at.Ranks == c.Ranks
	}
	if c.Repeated {
		return d.count(c.Place) > 1
	}
	if c.Knob != "" {
		value, known := plan[c.Knob]
		if !known {
			return false
		}
		word = value
	} else {
		if c.Place.Versions.outside(d.original.Packages) != "" {
			return false
		}
		value, found, err := d.raw(c.Place)
		if err != nil { // an argument without a value is a flag that is on
			value, found = "true", c.Place.Arg != ""
		}
		if !found || value == nil {
			return false
		}
		word = value
	}
	return c.Is == nil || slices.ContainsFunc(c.Is, func(is string) bool { return sameWord(word, is) })
}

// count is how often the command gives an argument, under all its names.
func (d *draft) count(p Place) int {
	n := 0
	for _, word := range d.argv[min(1, len(d.argv)):] {
		head, _, _ := strings.Cut(word, "=")
		if head == p.Arg || slices.Contains(p.Aliases, head) {
			n++
		}
	}
	return n
}
