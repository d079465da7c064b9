package format

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/recipes/edit"
	"github.com/gpurun/gpurun/strategy"
)

// A Knob describes where and how the framework keeps one knob. With Absent or Derived set there
// are no places. With Global the accumulation is derived from a global batch size if no place has
// it.
type Knob struct {
	// Places are changed together, and must agree when they are read.
	Places []Place `toml:"places"`
	// Alternatives: the places are the same setting, strongest first. The first with a value
	// counts; changes are written to the first of all.
	Alternatives bool `toml:"alternatives"`
	// Default is the knob's value if no place has one; empty: not known.
	Default strategy.Value `toml:"default"`
	Min     int            `toml:"min"`
	Max     int            `toml:"max"`
	// MinOf is a knob whose value is the smallest allowed one; empty: none.
	MinOf strategy.Knob
	// Scope is the way of counting accumulation, as in strategy.Range. A micro batch or an
	// evaluation batch of global scope counts all data-parallel ranks.
	Scope string `toml:"scope"`
	// Global is the source from which accumulation is derived; nil: none.
	Global *Global `toml:"global"`
	// Scales are places that count micro-steps, whose numbers grow with accumulation; a rule adds
	// them.
	Scales []Place
	// Weights: precision also sets the dtype of the weights.
	Weights bool `toml:"weights"`
	// Absent is the reason why the framework cannot change the knob.
	Absent string `toml:"absent"`
	// Fixed is the value of an absent knob; empty: not known.
	Fixed strategy.Value
	// Reported: the job's process reports the value of an absent knob.
	Reported bool
	// Follows is the knob from which the framework takes this one's value; empty: none.
	Follows strategy.Knob `toml:"knob"`
	// Given limits the knob to commands in which a place is present: the recipe cannot know
	// whether every script accepts the argument.
	Given bool `toml:"given"`
	// Own: the job's user, who knows its arguments, described the knob.
	Own bool
	// Likely are the settings that may be the knob, by their names; the knob has no other places then.
	Likely []LikelyPlace
	// Also are settings that are written when the knob is changed.
	Also []Setting `toml:"also"`
	// Unless are settings of the user that prevent a change of the knob.
	Unless []Condition `toml:"unless"`
}

// A LikelyPlace is a setting that may be a knob, by its name alone.
type LikelyPlace struct {
	// Name is its name for people: "--batch-size"; Key its name in the parser's result.
	Name, Key string
	Choices   []string // the values that the parser accepts; nil: any
	All       bool     // by its name or help it counts the samples of all ranks
	Grammar   ArgumentGrammar
	Knob      Knob
	Entry     map[string]any // its place, as in [knobs]
}

// InCode reports whether all places of the knob are arguments of calls in the job's code.
func (knob Knob) InCode() bool {
	return len(knob.Places) > 0 && !slices.ContainsFunc(knob.Places, func(p Place) bool { return !p.InCode() })
}

// Spelling lists the places of the knob in one line.
func (knob Knob) Spelling() string {
	if knob.Absent != "" {
		return "absent: " + knob.Absent
	}
	words := make([]string, 0, len(knob.Places))
	for _, p := range knob.Places {
		if p.spellings() != nil {
			words = append(words, p.Needs())
			continue
		}
		words = append(words, p.String())
	}
	return strings.Join(words, ", ")
}

// A Global is a global batch size, from which a framework derives accumulation.
type Global struct {
	// Places are alternatives, as in Knob.
	Places []Place
	// Nominal: accumulation is the global batch divided by one step's samples, rounded
	// ("nearest", "ceil"), and at least 1. Empty: it has to be whole.
	Nominal string
	// Default is the global batch if no place has one; 0: then there is no accumulation.
	Default int
	// Fixed: it is read and never written.
	Fixed bool
}

// A Setting is a value that gpurun writes at a place.
type Setting struct {
	Place Place `toml:",place"`
	Value any   `toml:"value" missing:"what is to be written is missing"`
	// When are the knob's values that require the setting; nil: any.
	When []strategy.Value `toml:"when"`
	// Keep leaves an existing value unchanged.
	Keep bool `toml:"keep"`
	// Reason is the reason for the setting, for people.
	Reason string `toml:"reason"`
}

// OnlyBounded reports whether an entry has a minimum, and no place: it is for the setting that is found without it.
func (k Knob) OnlyBounded() bool {
	return k.Min > 0 && k.Places == nil && k.Absent == "" && k.Global == nil && k.Scope == ""
}

// A Condition is a property of the user's command that prevents a change of a knob, or of some of
// its values.
type Condition struct {
	// Place, or Knob, is the setting to check.
	Place Place         `toml:",place"`
	Knob  strategy.Knob `toml:"knob"`
	// Repeated are the names of an argument that is present more than once, in place of both; a
	// rule adds it.
	Repeated []string
	// Ranks is a number of ranks, in place of both.
	Ranks int `toml:"ranks"`
	// Always: it holds for any command.
	Always bool
	// Unknown: the knob's value is then not that of its places, either.
	Unknown bool `toml:"unknown"`
	// Value is the knob's value then, unless the job's own setting already turns the knob on; empty: it
	// is as read. Of several conditions the first with a value counts. A rule sets it.
	Value strategy.Value
	// Missing: it counts only if the command has none of the knob's places; a rule sets it.
	Missing bool
	// Is are the words that count; nil: any.
	Is []string `toml:"is"`
	// Values are the knob's values that are ruled out; nil: all.
	Values []strategy.Value `toml:"values"`
	Reason string           `toml:"reason" missing:"why it cannot be turned is missing"`
}

// A Creation describes how a command gets a new DeepSpeed configuration.
type Creation struct {
	// Via is the argument or the variable that names the file.
	Via Via
	Arg string `toml:"arg"`
	Env string `toml:"env"`
	// Auto: the framework replaces values "auto" by its own arguments, and the optimizer by one
	// that can be offloaded. Otherwise it fills in missing values.
	Auto bool `toml:"auto"`
}

// TurnedOn reports whether the command has another value than the setting's.
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

// SameWord compares words; truth values are compared by their meaning.
func SameWord(a, b any) bool {
	x, y := fmt.Sprint(a), fmt.Sprint(b)
	if s, known := edit.Truth(x); known {
		if t, also := edit.Truth(y); also {
			return s == t
		}
	}
	return strings.EqualFold(x, y)
}

// Write writes the setting.
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
	// An existing flag is removed. A setting that is false because it is absent may be true in a
	// file, and is written out.
	return s.Place.Put(d, s.Value, !found && s.Value == false)
}

// WriteAlso writes the settings that belong to the knob's new value.
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

// Holds reports whether the user's command meets the condition.
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

// Unless lists the conditions of the knob that the command meets.
func (d *Draft) Unless(knob Knob, plan strategy.Plan) []Condition {
	return slices.DeleteFunc(slices.Clone(knob.Unless),
		func(c Condition) bool { return c.Missing && d.Given(knob) || !c.Holds(d, plan) })
}

// word is the value that the condition checks.
func (c Condition) word(d *Draft, plan strategy.Plan) (any, bool) {
	if c.Knob != "" {
		value, known := plan[c.Knob]
		return value, known
	}
	if c.Place.Versions.Outside(d.Original.Packages) != "" {
		return nil, false
	}
	if c.Is == nil && c.Place.SetInCode(d) { // also if the code computes it
		return "", true
	}
	word, found, err := c.Place.Read(d)
	if errors.Is(err, edit.ErrNoValue) { // a flag that is on
		return "true", true
	}
	return word, found && err == nil && word != nil
}

// count is the number of times that the command gives an argument, under all its names.
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
