package format

import (
	"maps"
	"slices"
)

// Grammar is how the framework reads its command line. A recipe names it by the
// library that does the reading.
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
	// Overrides: words key=value may follow that file, and are stronger.
	Overrides bool
	// Equals: an argument is given as one word, --x=8.
	Equals bool
	// Pairs: overrides are two words, KEY VALUE, behind all options.
	Pairs bool
}

// parsers are the ways of reading a command line, by the names that recipes use.
var parsers = map[string]Grammar{
	"argparse": {Abbreviations: true},
	// argparse, and behind its options pairs of words for a configuration of yacs.
	"yacs": {Abbreviations: true, Pairs: true},
	// click, tyro, and scripts of whose parser nothing is known.
	"dashes": {Dashes: true},
	// jsonargparse, and what else splits words at an equals sign only.
	"equals": {Equals: true},
	// https://github.com/huggingface/transformers/blob/main/src/transformers/hf_argparser.py
	"HfArgumentParser": {Dashes: true, Booleans: true, Abbreviations: true, File: true},
	// Descendants of it: TRL and ms-swift read files in ways of their own,
	// LLaMA-Factory takes words a=b behind the file.
	"TrlParser":    {Dashes: true, Booleans: true, Abbreviations: true},
	"LLaMAFactory": {Dashes: true, Booleans: true, Abbreviations: true, File: true, Overrides: true},
}

// parserNames lists the parsers.
func parserNames() []string { return slices.Sorted(maps.Keys(parsers)) }
