package format

import (
	"fmt"

	"github.com/gpurun/gpurun/recipes/patch"
)

// beginning is { word = "checkpoint:" }: a word like checkpoint:full, which stays
// at the end of the command, behind arguments that are appended.
type beginning struct {
	onCommand
	text string
}

var beginningSpecs = []spec[beginning]{
	{"word", "a word with this beginning, `\"ac:\"`", func(b *beginning) any { return &b.text }, ""},
}

func (b beginning) String() string { return "word " + b.text }
func (b beginning) Needs() string  { return b.String() }

func (b beginning) Present(d *Draft) bool {
	_, found := patch.Beginning(d.Argv, b.text)
	return found
}

func (b beginning) Read(d *Draft) (any, bool, error) {
	word, found := patch.Beginning(d.Argv, b.text)
	return word, found, nil
}

func (b beginning) Write(d *Draft, word any, _ bool) error {
	d.Argv = patch.SetBeginning(d.Argv, b.text, fmt.Sprint(word))
	return nil
}

// staysLast is the beginning of the words that have to stay at the end.
func (b beginning) staysLast() string { return b.text }
