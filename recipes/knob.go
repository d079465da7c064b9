package recipes

import "github.com/gpurun/gpurun/strategy"

// A Knob is where and how one knob is kept. With Absent or Derived set there are
// no places.
type Knob struct {
	// Places are changed together, and must agree when they are read.
	Places []Place
	// Default is the knob's value where no place holds one; empty: not known.
	Default  strategy.Value
	Min, Max int
	// Scope is how accumulation is counted, as in strategy.Range.
	Scope string
	// Weights says that precision also sets the dtype of the weights.
	Weights bool
	// Absent is the reason why the framework cannot turn the knob.
	Absent string
	// Given limits the knob to commands in which a place is present: the recipe
	// cannot know whether every script takes the argument.
	Given bool
}

// A Place is one spelling of a knob. Exactly one of Arg, Env, Override and Path
// is set, or Choose (alone) or Pick (with the fields of a file).
type Place struct {
	Arg      string // "--batch-size"
	Env      string // "BATCH_SIZE"
	Override string // "train.batch", for words like train.batch=8

	// File is the file's path as the command writes it; empty where Via names
	// an argument or variable whose value is the path.
	File string
	// Path is the value's path in the file: "train.batch", "groups.0.lr".
	Path string
	// Via are the arguments and variables that name the file.
	Via []Via
	// Alone says that the file includes no others, so that a copy needs none of
	// its siblings.
	Alone bool
	// Auto marks a place that only repeats another: a missing file or key, and
	// the value "auto", are left alone.
	Auto bool

	// No is the argument that says false: "--no-pin-memory".
	No string
	// Choose holds the words of each value, for values spelt by several.
	Choose map[strategy.Value][]string
	// Pick holds the keys of each value, for values spelt by several keys of a
	// file. A missing key counts as false.
	Pick map[strategy.Value]map[string]any

	// Values holds the words for each value: the first is the one written, all
	// are understood. A bool makes the place a flag, in a file a truth value.
	Values map[strategy.Value][]any
	// Reads are values that are understood, but never chosen.
	Reads map[strategy.Value][]any
}

// A Via is an argument or a variable whose value is the path of a file.
type Via struct {
	Arg string
	Env string
}
