package document

import (
	"fmt"
	"strings"
)

// A Problem is one thing that is wrong in a file.
type Problem struct {
	// Key is the path from the root of the file: {"recovery", "mode"}. An
	// element of an array is named by its index: {"knobs", "precision", "0"}.
	// A key that is not in the file is shown at the nearest table that is.
	Key []string
	// Message says what is wrong, and what to write instead: lower case, no
	// full stop.
	Message string
	// Suggest is the word that was probably meant, empty without a good guess.
	Suggest string
	// AtValue puts the caret under the value rather than under the key.
	AtValue bool
}

// String is the problem in one line, for where the file's text is not at hand:
// elements of arrays stand as numbers between the dots.
func (p Problem) String() string {
	text := p.Message
	if len(p.Key) > 0 {
		text = strings.Join(p.Key, ".") + ": " + text
	}
	return text + p.meant()
}

// meant is the guess as it is printed.
func (p Problem) meant() string {
	if p.Suggest == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", p.Suggest)
}
