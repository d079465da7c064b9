package strategy

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// A Value is the value of a knob: "8", "bf16", "true". In JSON, whole numbers and truth values
// have no quotes.
type Value string

// Number returns the value as a whole number.
func (v Value) Number() (int, bool) {
	n, err := strconv.Atoi(string(v))
	return n, err == nil
}

// Number makes a Value of a whole number.
func Number(n int) Value { return Value(strconv.Itoa(n)) }

// MarshalJSON writes numbers, true and false without quotes.
func (v Value) MarshalJSON() ([]byte, error) {
	if n, ok := v.Number(); ok {
		return []byte(strconv.Itoa(n)), nil
	}
	if v == "true" || v == "false" {
		return []byte(v), nil
	}
	return json.Marshal(string(v))
}

// UnmarshalJSON reads the form that MarshalJSON writes.
func (v *Value) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err == nil {
		*v = Value(s)
		return nil
	}
	text := Value(b)
	if n, whole := text.Number(); whole {
		text = Number(n)
	} else if text != "true" && text != "false" {
		return fmt.Errorf("knob value %s: want a string, a whole number, true or false", text)
	}
	*v = text
	return nil
}

// A Plan has the values with which the job runs in one attempt. An absent knob is not known.
type Plan map[Knob]Value

// With returns a copy of the plan with some values replaced.
func (p Plan) With(changes Plan) Plan {
	next := maps.Clone(p)
	if next == nil {
		next = Plan{}
	}
	maps.Copy(next, changes)
	return next
}

// Using returns a copy of the plan with the new values of some changes.
func (p Plan) Using(changes Changes) Plan { return p.With(changes.values()) }

// Number returns a whole-number knob of the plan.
func (p Plan) Number(k Knob) (int, bool) {
	v, known := p[k]
	if !known {
		return 0, false
	}
	return v.Number()
}

// Changed lists the values of next that differ from p: for each such knob the old value, empty if
// p does not have the knob, and the new one.
func (p Plan) Changed(next Plan) Changes {
	changes := Changes{}
	for k, v := range next {
		if p[k] != v {
			changes[k] = [2]Value{p[k], v}
		}
	}
	return changes
}

// String prints the plan in the order of Knobs.
func (p Plan) String() string {
	var words []string
	for _, k := range Knobs {
		if v, known := p[k]; known {
			words = append(words, fmt.Sprintf("%s=%s", k, v))
		}
	}
	return strings.Join(words, " ")
}

// Validate returns the first error in a plan from a file: a knob that does not exist, a value
// that its knob does not have, a negative number.
func (p Plan) Validate() error {
	for _, k := range slices.Sorted(maps.Keys(p)) {
		v, words := p[k], k.words()
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

func list(values []Value) string {
	all := make([]string, len(values))
	for i, v := range values {
		all[i] = string(v)
	}
	return strings.Join(all, ", ")
}

// Changes maps a knob to its old and its new value.
type Changes map[Knob][2]Value

// only keeps the changes of some knobs.
func (c Changes) only(knobs ...Knob) Changes {
	maps.DeleteFunc(c, func(k Knob, _ [2]Value) bool { return !slices.Contains(knobs, k) })
	return c
}

// values are the new values.
func (c Changes) values() Plan {
	values := Plan{}
	for k, pair := range c {
		values[k] = pair[1]
	}
	return values
}

// each is a phrase for each change, in the order of Knobs; empty ones are omitted.
func (c Changes) each(phrase func(k Knob, from, to Value) string) []string {
	var words []string
	for _, k := range Knobs {
		if pair, ok := c[k]; ok {
			if word := phrase(k, pair[0], pair[1]); word != "" {
				words = append(words, word)
			}
		}
	}
	return words
}

// String is a list for people: "micro batch 8→4, accumulation 2→4".
func (c Changes) String() string {
	return strings.Join(c.each(func(k Knob, from, to Value) string {
		if from != "" {
			from += "→"
		}
		return fmt.Sprintf("%s %s%s", k.Short(), from, to)
	}), ", ")
}

// Lost names the changes that had no effect: "micro batch 4 did not take effect, the job uses
// 8"; empty for none.
func (c Changes) Lost() string {
	return strings.Join(c.each(func(k Knob, planned, used Value) string {
		return fmt.Sprintf("%s %s did not take effect, the job uses %s", k.Short(), planned, used)
	}), "; ")
}

// Names lists the changed knobs, as in a sentence.
func (c Changes) Names() string {
	return strings.Join(c.each(func(k Knob, _, _ Value) string { return k.Short() }), " and ")
}
