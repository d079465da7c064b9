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
	// Follows is the knob that an absent one has its value from: the evaluation's batch is the
	// training's.
	Follows Knob `json:"follows,omitempty"`
	// Weights says that the precision also sets the dtype of the weights, so
	// that lowering it shrinks what is held between steps.
	Weights bool `json:"weights,omitempty"`
	// Scope is how the accumulation is counted: "" on each rank, "global" over
	// all data-parallel ranks, "derived" where the framework computes it from a
	// global batch size that stays as it is.
	Scope string `json:"scope,omitempty"`
	// By is who turns the knob: "" the recipe, in the job's own configuration, or ByHook.
	By By `json:"by,omitempty"`
	// Told: the job's process says the value, which its code computes.
	Told bool `json:"told,omitempty"`
	// Confirm: the value was read from the job's source, and is changed only once the
	// process has said that it runs with it.
	Confirm bool `json:"confirm,omitempty"`
	// Doubtful: nothing is assumed of the value before a process has said it, since the
	// job's code may set it.
	Doubtful bool `json:"doubtful,omitempty"`
	// Checkpoint says which changes of the knob a checkpoint outlives; nil: all.
	Checkpoint *Survival `json:"checkpoint,omitempty"`
}

// By is who turns a knob.
type By string

// ByRecipe changes the job's own configuration, ByHook something inside the process: the
// probe, at the first call of the root module. What the process does not say of such
// a knob, or refuses, is left alone.
const (
	ByRecipe By = ""
	ByHook   By = "hook"
)

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
