package commandline

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/environ"
)

// A Seen is a command with the wrappers that it stands behind.
type Seen struct {
	// Words are the wrappers' own, in order, without those of which gpurun does the
	// work itself.
	Words []string
	// Ask are Words with which an interpreter can be started in the command's place.
	Ask []string
	// Wrappers are the wrappers that Words are of.
	Wrappers []*Wrapper
	// Env are the variables that the wrappers set for the command.
	Env environ.Vars
	// Inner is the command. Where Direct is set, the last wrapper runs its first word, a
	// script, by itself.
	Inner  []string
	Direct bool
	// Warnings are sentences for people.
	Warnings []string
}

// Environment reports whether a wrapper finds the interpreter.
func (s *Seen) Environment() bool {
	return slices.ContainsFunc(s.Wrappers, func(w *Wrapper) bool { return w.Environment })
}

// Installs reports whether a wrapper may install packages before it starts anything.
func (s *Seen) Installs() bool {
	return slices.ContainsFunc(s.Wrappers, func(w *Wrapper) bool { return w.Installs })
}

// Contained reports whether the interpreter's files are out of sight.
func (s *Seen) Contained() bool {
	return slices.ContainsFunc(s.Wrappers, func(w *Wrapper) bool { return w.Contained })
}

// SeeThrough looks behind the wrappers that a command line begins with, as far as it
// is certain what they start, where, and with which variables.
func (t *Table) SeeThrough(words []string) Seen {
	s := Seen{Env: environ.Vars{}, Inner: words}
	for !s.Direct {
		w, ok := t.Unwrap(s.Inner)
		if !ok {
			return s
		}
		if why := w.opaque(); why != "" {
			s.Warnings = append(s.Warnings, why)
			return s
		}
		for name, value := range w.Env {
			s.Env[name] = value
		}
		if !w.TakenOff || len(w.Given) > 0 {
			s.add(w)
			continue
		}
		s.Inner = w.Inner
	}
	return s
}

// add puts one more wrapper in front of the command.
func (s *Seen) add(w Wrapped) {
	before, own := s.Words, s.Inner[:w.At]
	s.Inner, s.Wrappers = w.Inner, append(s.Wrappers, w.Wrapper)
	s.Words, s.Ask = slices.Concat(before, own), slices.Concat(before, own)
	if w.Holds != "" && !slices.ContainsFunc(w.Given, func(g Given) bool { return slices.Contains(w.Streams, g.option()) }) {
		s.Warnings = append(s.Warnings, fmt.Sprintf("%s: %s, without --%s", w.Name(), w.Holds, w.Streams[0]))
	}
	if !w.Runs {
		return
	}
	plain := func(names ...string) ([]string, bool) { // the wrapper without an option
		left := slices.DeleteFunc(slices.Clone(own), func(word string) bool { return slices.Contains(names, word) })
		return slices.Concat(before, left), len(left) < len(own)
	}
	if words, module := plain("-m", "--module"); module {
		// What the wrapper would give its interpreter, gpurun gives it.
		s.Words, s.Ask = words, words
		s.Inner = append([]string{"python", "-m"}, s.Inner...)
		return
	}
	words, script := plain("-s", "--script", "--gui-script")
	first := s.Inner[0]
	s.Ask = words
	s.Direct = script || !strings.Contains(first, "://") && (strings.HasSuffix(first, ".py") || strings.HasSuffix(first, ".pyw"))
}

// opaque says why gpurun does not look behind a wrapper; empty where it does.
func (w Wrapped) opaque() string {
	does, always := w.Opaque[""]
	if always {
		return fmt.Sprintf("%s %s, so that gpurun does not look at the command behind it: put gpurun there", w.Name(), does)
	}
	for _, g := range w.Given {
		if does := w.Opaque[g.option()]; does != "" {
			return fmt.Sprintf("%s of %s %s, so that gpurun does not look at the command behind it", g.Source, w.Name(), does)
		}
	}
	return ""
}

// option is an option's name, or its letter.
func (g Given) option() string {
	if g.Name == "" {
		return string(g.Short)
	}
	return g.Name
}
