package format

import (
	"maps"
	"slices"
)

// The tables of the language, by the names that this package gives them.
const (
	inRecipe     = "recipe"
	inDetect     = "detect"
	inResume     = "resume"
	inProgress   = "progress"
	inDeepSpeed  = "deepspeed"
	inKnob       = "knob"
	inPlace      = "place"
	inVia        = "via"
	inParallel   = "parallel"
	inSetting    = "setting"
	inCondition  = "condition"
	inCheckpoint = "checkpoint"
	inProof      = "proof"
	inLoss       = "loss"
	// inWords has the reader's own names for keys: knobs, values, packages.
	inWords = "words"
)

// keys are all keys of the language, by the table that they stand in. README.md
// explains each of them.
var keys = map[string][]string{
	inRecipe: {
		"name", "title", "rules", "parser", "arguments", "versions", "detect", "resume", "progress", "knobs", "parallel", "deepspeed", "own_oom", "also",
		"checkpoint", "proof", "loss",
	},
	inDetect:     {"imports", "unless", "args", "env", "keys", "over", "source", "programs"},
	inResume:     {"latest", "args", "pointer", "needs", "pin", "env", "lost", "data", "shifts", "values", "also"},
	inProgress:   {"step", "nothing"},
	inDeepSpeed:  {"arg", "env", "auto"},
	inKnob:       {"default", "min", "max", "scope", "weights", "given", "absent", "knob", "alternatives", "places", "global", "also", "unless"},
	inPlace:      {"arg", "no", "env", "override", "under", "word", "assigned", "file", "path", "via", "alone", "auto", "there", "choose", "call", "keyword", "values", "reads", "versions"},
	inParallel:   {"alternatives"},
	inVia:        {"arg", "env", "override", "word", "path", "via", "any"},
	inSetting:    {"value", "when", "keep", "reason"},
	inCondition:  {"knob", "ranks", "is", "values", "reason", "unknown", "missing"},
	inCheckpoint: {"knob", "survives", "reason"},
	inProof:      {"knob", "line", "file", "path", "values"},
	inLoss:       {"class", "reason", "versions", "source", "unless"},
}

// Keys are the names of all keys of the language, sorted, each once.
func Keys() []string {
	names := map[string]bool{}
	for _, table := range keys {
		for _, name := range table {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// KnobKeys are the keys that a knob, or a place of it, may have, sorted, each once.
func KnobKeys() []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(keys[inKnob], keys[inPlace]))))
}
