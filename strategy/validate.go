package strategy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Validate says what is wrong with a plan that comes from outside, such as a stored
// one: a knob that is none, a word that its knob does not have, a number below zero.
func (p Plan) Validate() error {
	for _, k := range slices.Sorted(maps.Keys(p)) {
		v := p[k]
		words := Vocabulary(k)
		n, whole := v.Number()
		switch {
		case !slices.Contains(Knobs, k):
			return fmt.Errorf("the plan has the knob %q, which does not exist", k)
		case k.Whole() && !whole:
			return fmt.Errorf("the plan's %s is %q, and has to be a whole number", k, v)
		case k.Whole() && n < 0:
			return fmt.Errorf("the plan's %s is %d, and cannot be negative", k, n)
		case words != nil && !slices.Contains(words, v):
			return fmt.Errorf("the plan's %s is %q, and has to be one of %s", k, v, list(words))
		case v == "":
			return fmt.Errorf("the plan's %s is empty", k)
		}
	}
	return nil
}

func list(words []Value) string {
	all := make([]string, len(words))
	for i, w := range words {
		all[i] = string(w)
	}
	return strings.Join(all, ", ")
}
