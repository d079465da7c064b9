package format

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/gpurun/gpurun/strategy"
)

// A Proof is where it shows which value of a knob the framework really uses: in
// a line of the job's output, or in a file that the framework writes.
type Proof struct {
	Knob strategy.Knob
	// Line matches a line; its first group is the value. Nil: the proof is a file.
	Line *regexp.Regexp
	// File is a glob, written as Resume.Latest is, and Path a key in what it matches.
	File, Path string
	// Words are the framework's words for the knob's values; nil: as in the plan.
	Words map[strategy.Value][]any
}

// Value understands what a proof shows; false where it says nothing, such as a
// word that the recipe does not know.
func (p Proof) Value(word any) (strategy.Value, bool) {
	text := fmt.Sprint(word)
	if p.Knob.Whole() {
		word = strings.ReplaceAll(text, ",", "") // 1,024
	}
	v, err := Place{Words: p.Words}.Understand(p.Knob, word)
	return v, err == nil
}

// A Survival says between which values of a knob a checkpoint survives a change.
type Survival struct {
	Knob strategy.Knob
	// Families are sets of values; inside one, the checkpoint can be loaded. None:
	// no change of the knob can be.
	Families [][]strategy.Value
	Reason   string
}
