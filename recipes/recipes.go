// Package recipes knows where a training framework keeps each setting that a strategy may change.
// It reads the plan of a command, and turns the next plan into a changed command and changed
// copies of its files.
//
// The package does no I/O: the caller loads the files that FilesNamed lists, and writes the files
// of a strategy.Command. A plan is always applied to the original command, never to the result of an
// earlier plan.
//
// README.md documents the format of a recipe file and of the [knobs] table.
package recipes

import (
	"slices"

	"github.com/gpurun/gpurun/recipes/edit"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// A Recipe describes how one framework, or one user's script, spells the knobs. It reads and
// changes commands.
type Recipe struct{ format.Recipe }

// The parts of a recipe, and its inputs.
type (
	Command  = format.Command
	Topology = format.Topology
	Knob     = format.Knob
	Resume   = format.Resume
	Progress = format.ProgressLines
	Verified = format.Verified
)

// ParseFile reads a recipe file, which the user knows by this name. The error is a
// *edit.FileError with all its faults, each at its position.
func ParseFile(file string, text []byte) (Recipe, error) {
	r, err := format.Parse(file, text, rules)
	return Recipe{r}, err
}

// FromKnobs reads the [knobs] table of a train.toml, in the form that a TOML decoder returns. The
// recipe has no name.
func FromKnobs(table map[string]any) (Recipe, []edit.Problem) {
	r, problems := format.FromKnobs(table)
	return Recipe{r}, problems
}

// KnobKeys lists the keys that an entry of [knobs] may have.
func KnobKeys() []string { return format.KnobKeys() }

// Turned lists the knobs that the recipe can change, in the order of strategy.Knobs.
func (r Recipe) Turned() []strategy.Knob {
	return slices.DeleteFunc(slices.Clone(strategy.Knobs), func(k strategy.Knob) bool {
		knob, known := r.Knobs[k]
		return !known || knob.Absent != ""
	})
}

// Families returns the sets of a knob's values within which a checkpoint survives a change, and
// the reason why it does not survive others. It is false for a knob on which checkpoints do not
// depend.
func (r Recipe) Families(k strategy.Knob) (families [][]strategy.Value, reason string, fragile bool) {
	for _, s := range r.Checkpoint {
		if s.Knob == k {
			return s.Families, s.Reason, true
		}
	}
	return nil, "", false
}

// With returns the recipe in which the knobs of over replace its knobs, with over's resume and
// progress if over has them.
func (r Recipe) With(over Recipe) Recipe { return Recipe{r.Recipe.With(over.Recipe)} }
