package recipes

import (
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
	// Unit is what the micro batch counts: samples (empty) or tokens.
	Unit string
	// Scope is how accumulation is counted, as in strategy.Range. A micro batch or
	// an evaluation batch of global scope counts all data-parallel ranks.
	Scope string
	// Global is where accumulation is derived from; nil: it is a number of its own.
	Global *Global
	// Scales are places that count micro-steps: their numbers grow with accumulation.
	Scales []Place
	// Weights says that precision also sets the dtype of the weights.
	Weights bool
	// Absent is the reason why the framework cannot turn the knob.
	Absent string
	// Given limits the knob to commands in which a place is present: the recipe
	// cannot know whether every script takes the argument.
	Given bool
	// Also are settings that are written when the knob is changed.
	Also []Setting
	// Unless are settings of the user's that keep the knob from being turned.
	Unless []Condition
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
	// Ranks is a number of ranks, in place of both.
	Ranks int
	// Repeated: the argument is given more than once.
	Repeated bool
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

// A Place is one spelling of a knob. Exactly one of Arg, Env, Override, Word,
// Assigned and Path is set, or Choose (alone) or Pick (with the fields of a file).
type Place struct {
	Arg string // "--batch-size"
	// Aliases are further names of Arg: "-b".
	Aliases  []string
	Env      string // "BATCH_SIZE"
	Override string // "train.batch", for words like train.batch=8
	Word     string // "checkpoint:", for words like checkpoint:full
	Assigned string // "batch_size": a Python file or the script assigns it; it is read, never written

	// Under is the option behind which an override stands, empty: anywhere.
	Under string

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
	// Chosen: a number that is no size, such as -1 or 0.7, makes the framework choose.
	Chosen bool
	// There: of alternatives, one that is changed only where it holds a value.
	There bool
	// Optional: a file that is not named holds nothing.
	Optional bool
	// Versions are those in which the place exists; nil: all.
	Versions Versions

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

// A Via is what names a file: an argument, a variable, an override, the n-th word
// that is no option (from 1), or a key of a file that is named itself.
type Via struct {
	Arg string
	// Any: the value is a file's path whatever its ending, also beside other vias.
	Any      bool
	Env      string
	Override string
	Word     int
	Path     string
	In       *Via
}
