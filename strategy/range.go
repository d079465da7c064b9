package strategy

import "slices"

// A Range is what a job's recipe can do with one knob.
type Range struct {
	// Values are the allowed words, in the order of the knob's vocabulary; nil
	// for a whole number.
	Values []Value `json:"values,omitempty"`
	// Min and Max bound a whole number; 0: no bound.
	Min int `json:"min,omitempty"`
	Max int `json:"max,omitempty"`
	// Absent is the reason why the job cannot turn the knob; empty: it can.
	Absent string `json:"absent,omitempty"`
	// Weights says that the precision also sets the dtype of the weights, so
	// that lowering it shrinks what is held between steps.
	Weights bool `json:"weights,omitempty"`
	// Scope is how the accumulation is counted: "" on each rank, "global" over
	// all data-parallel ranks, "derived" where the framework computes it from a
	// global batch size that stays as it is.
	Scope string `json:"scope,omitempty"`
	// Confirm says that the knob was read from the source of a script: it is turned
	// only where the process has said the same value.
	Confirm bool `json:"confirm,omitempty"`
	// Checkpoint says which changes of the knob a checkpoint outlives; nil: all.
	Checkpoint *Survival `json:"checkpoint,omitempty"`
}

// A Survival lists the groups of values between which a job can change and still
// resume from a checkpoint. No groups: it survives no change at all.
type Survival struct {
	Groups [][]Value `json:"groups"`
	Reason string    `json:"reason"`
}

// Outlives reports whether a checkpoint written with one value can be resumed
// from with the other.
func (r Range) Outlives(from, to Value) bool {
	if r.Checkpoint == nil || from == to {
		return true
	}
	return slices.ContainsFunc(r.Checkpoint.Groups, func(g []Value) bool {
		return slices.Contains(g, from) && slices.Contains(g, to)
	})
}

// The scopes of gradient accumulation.
const (
	ScopeGlobal  = "global"
	ScopeDerived = "derived"
)

// Allows reports whether the knob can be set to v.
func (r Range) Allows(v Value) bool {
	if r.Absent != "" {
		return false
	}
	if r.Values != nil {
		return slices.Contains(r.Values, v)
	}
	n, whole := v.Number()
	if !whole {
		return true
	}
	return n >= r.Min && (r.Max == 0 || n <= r.Max)
}
