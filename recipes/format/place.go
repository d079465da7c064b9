package format

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gpurun/gpurun/recipes/patch"
	"github.com/gpurun/gpurun/strategy"
)

// ErrAuto says that a place leaves the value to the framework.
var ErrAuto = errors.New("left to the framework")

// A Kind is one way of keeping a value: an argument, a variable, a key of a file.
// Each is a file of its own, and nothing outside of it asks which one it is.
type Kind interface {
	// String is the place as a person would point to it.
	String() string
	// Read is what the place holds, in the framework's own words. The error may be
	// ErrAuto.
	Read(d *Draft) (word any, found bool, err error)
	// Write puts a word there. Absence is what the job does without the place,
	// where that is a truth value.
	Write(d *Draft, word any, absence bool) error
	// Files are the files, as the command writes them, that Read looks into.
	Files(d *Draft) []string
	// Unwritable is the reason why what the place holds cannot be changed, empty
	// if it can; Missing, why the place cannot be made where it is not.
	Unwritable(d *Draft) string
	Missing(d *Draft) string
	// Arguments are the long arguments that the place uses.
	Arguments() []string
	// Values are the knob's values that it has a spelling for; nil: those that
	// the place has words for.
	Values() []strategy.Value
}

// onCommand is what most kinds that are part of the command have in common.
type onCommand struct{}

func (onCommand) Files(*Draft) []string    { return nil }
func (onCommand) Unwritable(*Draft) string { return "" }
func (onCommand) Missing(*Draft) string    { return "" }
func (onCommand) Arguments() []string      { return nil }
func (onCommand) Values() []strategy.Value { return nil }

// A Place is one spelling of a knob: where it is kept, and in which words.
type Place struct {
	Kind
	// Auto marks a place that only repeats another: a missing file or key, and
	// the value "auto", are left alone.
	Auto bool
	// Chosen: a number that is no size, such as -1 or 0.7, or the word "auto", makes the
	// framework choose.
	Chosen bool
	// There: of alternatives, one that is changed only where it holds a value.
	There bool
	// Versions are those in which the place exists; nil: all.
	Versions Versions
	// Words holds the words for each value: the first is the one written, all
	// are understood. Bools make the place a flag, in a file a truth value.
	Words map[strategy.Value][]any
	// Reads are values that are understood, but never chosen.
	Reads map[strategy.Value][]any
	// Implied is what the place stands for where it is absent; empty: nothing.
	Implied strategy.Value
}

// Needs is what a command has to have for the place to be there.
func (p Place) Needs() string {
	if in := p.InFile(); in != nil && len(in.vias) > 0 {
		return in.names()
	}
	if c, ok := p.Kind.(interface{ needs() string }); ok {
		return c.needs()
	}
	return p.String()
}

// Present reports whether the command has the place; for a place in a file, whether it
// names the file.
func (p Place) Present(d *Draft) bool {
	if k, ok := p.Kind.(interface{ Present(d *Draft) bool }); ok {
		return k.Present(d)
	}
	_, found, _ := p.Read(d)
	return found
}

// InFile is the file that the place is in, nil for a place that is in none.
func (p Place) InFile() *InFile {
	if in, ok := p.Kind.(interface{ inFile() *InFile }); ok {
		return in.inFile()
	}
	return nil
}

// flag reports whether the place holds a truth value.
func (p Place) flag() bool {
	for _, words := range p.Words {
		for _, word := range words {
			if _, isBool := word.(bool); !isBool {
				return false
			}
		}
	}
	return len(p.Words) > 0
}

// Set changes the knob's value; absence is the job's value without the place.
func (p Place) Set(d *Draft, k strategy.Knob, value, absence strategy.Value) error {
	_, found, err := p.Read(d)
	if p.Auto && (errors.Is(err, ErrAuto) || !found && err == nil) {
		return nil
	}
	word, wrong := p.write(k, value)
	if wrong != nil {
		return wrong
	}
	words := p.Words[absence]
	return p.Put(d, word, len(words) > 0 && words[0] == true)
}

// Put writes a word in the style of the one that it replaces: all values are written by it.
// Absence is what the job does without the place, where that is a truth value.
func (p Place) Put(d *Draft, word any, absence bool) error {
	old, found, err := p.Read(d)
	if err != nil && !errors.Is(err, ErrAuto) {
		return err
	}
	if found {
		word = inStyle(old, word)
	}
	return p.Write(d, word, absence)
}

// write is the framework's word for a value.
func (p Place) write(k strategy.Knob, value strategy.Value) (any, error) {
	if n, whole := value.Number(); whole && k.Whole() {
		return int64(n), nil
	}
	if words := p.Words[value]; len(words) > 0 {
		return words[0], nil
	}
	if p.Words != nil {
		return nil, fmt.Errorf("has no word for %q", value)
	}
	return string(value), nil
}

// inStyle keeps the type of the old value: a number in quotes stays in quotes,
// and yes becomes no.
func inStyle(old, word any) any {
	text, wasText := old.(string)
	if !wasText {
		return word
	}
	if truth, isBool := word.(bool); isBool {
		if was, known := patch.Truth(text); known && was != truth {
			return patch.Opposite(text)
		}
	}
	return fmt.Sprint(word)
}

// startsWithDashes tells an argument that can be cut short.
func startsWithDashes(name string) bool { return strings.HasPrefix(name, "--") }
