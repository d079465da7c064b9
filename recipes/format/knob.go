package format

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/recipes/patch"
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
	// Global is where accumulation is derived from; nil: from nothing.
	Global *Global
	// Scales are places that count micro-steps, whose numbers grow with accumulation;
	// a rule adds them.
	Scales []Place
	// Weights: precision also sets the dtype of the weights.
	Weights bool
	// Absent is the reason why the framework cannot turn the knob.
	Absent string
	// Follows is the knob that the framework takes this one's value from; empty for none.
	Follows strategy.Knob
	// Given limits the knob to commands in which a place is present: the recipe
	// cannot know whether every script takes the argument.
	Given bool
	// Own: the job's user, who knows its arguments, wrote where the knob is kept.
	Own bool
	// Confirm: it was read from the source of a script, and is turned only where the
	// process reports the same value.
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
	// Reason is for people.
	Reason string
}

// A Condition is something in the user's command that keeps a knob, or some of
// its values, from being turned.
type Condition struct {
	// Place, or Knob, is what is looked at.
	Place Place
	Knob  strategy.Knob
	// Repeated are the names of an argument that is there more than once, in place
	// of both; a rule adds it.
	Repeated []string
	// Ranks is a number of ranks, in place of both.
	Ranks int
	// Always: it holds for any command.
	Always bool
	// Unknown: the knob's value is not that of its places, either.
	Unknown bool
	// Missing: it counts only where the command has none of the knob's places.
	Missing bool
	// Is are the words that count; nil: any.
	Is []string
	// Values are the knob's values that are ruled out; nil: all.
	Values []strategy.Value
	Reason string
}

// A Creation is how a command gets a DeepSpeed configuration that it does not have.
type Creation struct {
	// Via is the argument or the variable that names the file.
	Via Via
	// Auto: the framework replaces values "auto" by its own arguments, and the
	// optimizer by one that can be offloaded. Otherwise it fills in missing values.
	Auto bool
}

// TurnedOn reports whether the command holds another value than the setting's.
func (s Setting) TurnedOn(d *Draft) (bool, error) {
	word, found, err := s.Place.Read(d)
	if errors.Is(err, ErrAuto) {
		return false, nil // only the process knows it
	}
	if err != nil || !found {
		return false, err
	}
	return !SameWord(word, s.Value), nil
}

// SameWord compares words, truth values by their meaning.
func SameWord(a, b any) bool {
	x, y := fmt.Sprint(a), fmt.Sprint(b)
	if s, known := patch.Truth(x); known {
		if t, also := patch.Truth(y); also {
			return s == t
		}
	}
	return strings.EqualFold(x, y)
}

// Write makes the setting.
func (s Setting) Write(d *Draft) error {
	if s.Place.Versions.Outside(d.Original.Packages) != "" {
		return nil
	}
	word, found, err := s.Place.Read(d)
	if err != nil {
		return fmt.Errorf("%s: %w", s.Place, err)
	}
	if found && (s.Keep || SameWord(word, s.Value)) {
		return nil
	}
	// A flag that is there is taken away; what is false by being absent may be
	// true in a file, and is written out.
	return s.Place.Put(d, s.Value, !found && s.Value == false)
}

// WriteAlso makes the settings that go with the knob's new value.
func (knob Knob) WriteAlso(d *Draft, value strategy.Value) error {
	for _, s := range knob.Also {
		if s.When != nil && !slices.Contains(s.When, value) {
			continue
		}
		if err := s.Write(d); err != nil {
			return err
		}
	}
	return nil
}

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
