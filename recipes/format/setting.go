package format

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/recipes/patch"
	"github.com/gpurun/gpurun/strategy"
)

// TurnedOn reports whether the command holds another value than the setting's.
func (s Setting) TurnedOn(d *Draft) (bool, error) {
	word, found, err := s.Place.Read(d)
	if errors.Is(err, ErrAuto) {
		return false, nil // the process may say it; nobody else does
	}
	if err != nil || !found {
		return false, err
	}
	return !SameWord(word, s.Value), nil
}

// SameWord compares words, truth values by their meaning.
func SameWord(a, b any) bool {
	x, y := fmt.Sprint(a), fmt.Sprint(b)
	if s, known := patch.Truth(x); known {
		if t, also := patch.Truth(y); also {
			return s == t
		}
	}
	return strings.EqualFold(x, y)
}

// Write makes the setting.
func (s Setting) Write(d *Draft) error {
	if s.Place.Versions.Outside(d.Original.Packages) != "" {
		return nil
	}
	word, found, err := s.Place.Read(d)
	if err != nil {
		return fmt.Errorf("%s: %w", s.Place, err)
	}
	if found && (s.Keep || SameWord(word, s.Value)) {
		return nil
	}
	// A flag that is there is taken away; what is false by being absent may be
	// true in a file, and is written out.
	return s.Place.Put(d, s.Value, !found && s.Value == false)
}

// WriteAlso makes the settings that go with the knob's new value.
func (knob Knob) WriteAlso(d *Draft, value strategy.Value) error {
	for _, s := range knob.Also {
		if s.When != nil && !slices.Contains(s.When, value) {
			continue
		}
		if err := s.Write(d); err != nil {
			return err
		}
	}
	return nil
}
