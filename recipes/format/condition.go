package format

import (
	"errors"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/strategy"
)

// Holds reports whether the user's command is what a condition names.
func (c Condition) Holds(d *Draft, plan strategy.Plan) bool {
	switch {
	case c.Always:
		return true
	case c.Ranks > 0:
		return d.At.Ranks == c.Ranks
	case len(c.Repeated) > 0:
		return d.count(c.Repeated) > 1
	}
	word, found := c.word(d, plan)
	return found && (c.Is == nil || slices.ContainsFunc(c.Is, func(is string) bool { return SameWord(word, is) }))
}

// Unless are the conditions of the knob that the command meets.
func (d *Draft) Unless(knob Knob, plan strategy.Plan) []Condition {
	return slices.DeleteFunc(slices.Clone(knob.Unless), func(c Condition) bool { return c.Missing && d.Given(knob) || !c.Holds(d, plan) })
}

// word is what the condition looks at.
func (c Condition) word(d *Draft, plan strategy.Plan) (any, bool) {
	if c.Knob != "" {
		value, known := plan[c.Knob]
		return value, known
	}
	if c.Place.Versions.Outside(d.Original.Packages) != "" {
		return nil, false
	}
	word, found, err := c.Place.Read(d)
	if errors.Is(err, ErrNoValue) { // a flag that is on
		return "true", true
	}
	return word, found && err == nil && word != nil
}

// count is how often the command gives an argument, under all its names.
func (d *Draft) count(names []string) int {
	n := 0
	for _, word := range d.Argv[min(1, len(d.Argv)):] {
		head, _, _ := strings.Cut(word, "=")
		if slices.Contains(names, head) {
			n++
		}
	}
	return n
}
