package format

import (
	"strings"

	"github.com/gpurun/gpurun/strategy"
)

// A Knob is where and how one knob is kept. With Absent or Derived set there are
// no places; with Global the accumulation is what a global batch size leaves where
// no place holds it.
type Knob struct {
	// Places are changed together, and must agree when they are read.
	Places []Place
	// Alternatives: the places are the same setting, strongest first. The first
	// that holds a value counts; what changes is written to the first of all.
	Alternatives bool
	// Default is the knob's value where no place holds one; empty: not known.
	Default  strategy.Value
	Min, Max int
	// MinOf is a knob whose value is the smallest one, empty for none.
	MinOf strategy.Knob
	// Scope is how accumulation is counted, as in strategy.Range. A micro batch or
	// an evaluation batch of global scope counts all data-parallel ranks.
	Scope string
	// Global is where accumulation is derived from; nil: it is a number of its own.
	Global *Global
	// Scales are places that count micro-steps, whose numbers grow with accumulation;
	// a rule says them.
	Scales []Place
	// Weights says that precision also sets the dtype of the weights.
	Weights bool
	// Absent is the reason why the framework cannot turn the knob.
	Absent string
	// Follows is the knob that the framework takes this one's value from; empty for none.
	Follows strategy.Knob
	// Given limits the knob to commands in which a place is present: the recipe
	// cannot know whether every script takes the argument.
	Given bool
	// Own: the job's user said where it is kept, who knows the job's arguments.
	Own bool
	// Confirm: it was read from the source of a script, and is turned only where the
	// process has said the same value.
	Confirm bool
	// Also are settings that are written when the knob is changed.
	Also []Setting
	// Unless are settings of the user's that keep the knob from being turned.
	Unless []Condition
}

// Spelling is where the knob is kept, in one line.
func (knob Knob) Spelling() string {
	if knob.Absent != "" {
		return "absent: " + knob.Absent
	}
	words := make([]string, 0, len(knob.Places))
	for _, p := range knob.Places {
		words = append(words, p.String())
	}
	return strings.Join(words, ", ")
}

// A Global is a global batch size, from which a framework derives accumulation.
type Global struct {
	// Places are alternatives, as in Knob.
	Places []Place
	// Nominal: accumulation is the global batch over one step's samples, rounded
	// ("nearest", "ceil"), and at least 1. Empty: it has to be whole.
	Nominal string
	// Default is the global batch where no place holds one; 0: there is no
	// accumulation then.
	Default int
	// Fixed: it is read and never written.
	Fixed bool
}

// A Setting is a value that gpurun writes at a place.
type Setting struct {
	Place Place
	Value any
	// When are the knob's values that bring the setting; nil: any.
	When []strategy.Value
	// Keep leaves a value that is there.
	Keep bool
	// Reason says why, for people.
	Reason string
}

// A Condition is something in the user's command that keeps a knob, or some of
// its values, from being turned.
type Condition struct {
	// Place, or Knob, is what is looked at.
	Place Place
	Knob  strategy.Knob
	// Repeated are the names of an argument that is there more than once, in place
	// of both; a rule says it.
	Repeated []string
	// Ranks is a number of ranks, in place of both.
	Ranks int
	// Always: it holds whatever the command says.
	Always bool
	// Unknown: the knob's value is not what its places say, either.
	Unknown bool
	// Missing: it counts only where the command has none of the knob's places.
	Missing bool
	// Is are the words that count; nil: any.
	Is []string
	// Values are the knob's values that are ruled out; nil: all.
	Values []strategy.Value
	Reason string
}

// A Creation is how a framework is told of a DeepSpeed configuration, where the
// command has none yet.
type Creation struct {
	// Via is the argument or the variable that names the file.
	Via Via
	// Auto: the framework replaces values "auto" by its own arguments, and the
	// optimizer by one that can be offloaded. Otherwise it fills in what is left out.
	Auto bool
}
