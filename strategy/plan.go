package strategy

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
)

// A Value is what a knob is set to, in the knob's own words: "8", "bf16",
// "true". In JSON a whole number is a number and "true" is true.
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

// UnmarshalJSON reads what MarshalJSON writes.
func (v *Value) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err == nil {
		*v = Value(s)
		return nil
	}
	switch text := string(b); {
	case text == "true", text == "false":
		*v = Value(text)
	default:
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("knob value %s: want a string, a whole number, true or false", text)
		}
		*v = Number(n)
	}
	return nil
}

// A Plan is the value of every knob that the job is known to have: what it runs
// with in one attempt. A knob that is absent is not known.
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

// Using returns a copy of the plan with what is in use for each of its changes that
// did not take effect.
func (p Plan) Using(ineffective Changes) Plan {
	used := p.With(nil)
	for k, pair := range ineffective {
		used[k] = pair[1]
	}
	return used
}

// Number returns a whole-number knob of the plan.
func (p Plan) Number(k Knob) (int, bool) {
	v, known := p[k]
	if !known {
		return 0, false
	}
	return v.Number()
}

// Changed tells how next differs from p: for each such knob the old value and
// the new one, the old one empty where p did not know the knob.
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

// Changes maps a knob to its old and its new value.
type Changes map[Knob][2]Value

// String says the changes as a person would: "micro batch 8→4, accumulation 2→4".
func (c Changes) String() string {
	var words []string
	for _, k := range Knobs {
		if pair, ok := c[k]; ok {
			old := string(pair[0]) + "→"
			if pair[0] == "" { // nobody knew it
				old = ""
			}
			words = append(words, fmt.Sprintf("%s %s%s", k.Short(), old, pair[1]))
		}
	}
	return strings.Join(words, ", ")
}
