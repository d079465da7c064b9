// Package recipes knows where a training framework keeps each setting that a
// strategy may change. It reads the plan that a command stands for, and turns
// the next plan into a changed command and changed copies of its files.
//
// Nothing in here does I/O: the caller loads the files that FilesNamed asks
// for, and writes the files that a Change holds. A plan is always applied to the
// original command, never to the result of an earlier plan.
//
// README.md documents the format of a recipe file and of the [knobs] table.
package recipes

import (
	"maps"

	"github.com/gpurun/gpurun/strategy"
)

// A Recipe is how one framework, or one user's script, spells the knobs.
type Recipe struct {
	Name  string
	Title string
	// Knobs holds the knobs that the recipe knows of. One that is missing here
	// cannot be turned.
	Knobs     map[strategy.Knob]Knob
	Detection Detection
	Grammar   Grammar
	Resume    Resume
	Progress  Progress
	// Verified is nil as long as nobody has run the recipe's rungs for real.
	Verified *Verified
	// Rules name the framework's own bindings between settings (rule.go).
	Rules []string
}

// Detection says by which marks a command is recognised as the framework's.
type Detection struct {
	// Imports are names ("transformers.HfArgumentParser") or whole modules
	// ("deepspeed"); the script imports at least one of them.
	Imports []string
	// Unless are names or modules that rule the framework out.
	Unless []string
	// Args are arguments, of which the command has at least one.
	Args []string
	// Keys are top-level keys, of which a configuration file that the command
	// names has at least one. A key can stand in for an argument.
	Keys []string
	// Over names recipes that give way where both match.
	Over []string
}

// Grammar is how the framework reads its command line.
type Grammar struct {
	// Dashes: "--batch-size" and "--batch_size" are the same argument.
	Dashes bool
	// Booleans: a flag may be followed by any of argparse users' truth words
	// (yes, no, 1, 0 …), not only by true or false.
	Booleans bool
	// Abbreviations: an argument may be cut short where that is unambiguous.
	Abbreviations bool
	// File: one JSON or YAML file as the only argument holds all arguments by
	// name, without their dashes.
	File bool
}

// Resume is how a job goes on from its newest checkpoint.
type Resume struct {
	// Latest is a glob of complete checkpoints. "{--output_dir}" in it stands
	// for the value of that argument.
	Latest string
	// Args are put on the command line; "{latest}" in them is the checkpoint.
	Args []string
}

// Progress is how a step shows in the job's output.
type Progress struct {
	// Step is a regular expression whose first group is the number of the step.
	Step string
}

// Verified says with what a recipe was run for real.
type Verified struct {
	Version string   `json:"version"`
	Rungs   []string `json:"rungs"`
}

// With returns the recipe with the knobs of over in place of its own, and with
// over's resume and progress where over has them.
func (r Recipe) With(over Recipe) Recipe {
	r.Knobs = maps.Clone(r.Knobs)
	if r.Knobs == nil {
		r.Knobs = map[strategy.Knob]Knob{}
	}
	maps.Copy(r.Knobs, over.Knobs)
	if over.Resume.Latest != "" {
		r.Resume = over.Resume
	}
	if over.Progress.Step != "" {
		r.Progress = over.Progress
	}
	return r
}
