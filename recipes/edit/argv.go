package edit

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Argv is the way in which a program reads its command line. The zero value is plain argparse.
// The first word of a command line is the program, and is not read.
type Argv struct {
	// Dashes: dashes and underscores inside a name are the same.
	Dashes bool
	// Booleans: a flag also accepts yes, no, 1, 0, t, f, y and n, not only true and false.
	Booleans bool
	// Short are long arguments that may be abbreviated, as argparse allows, if no other of them
	// begins with the abbreviation.
	Short []string
	// Other reports whether a word is another argument, which is not in Short and so is not an
	// abbreviation; nil: no word is.
	Other func(word string) bool
	// Equals: an absent argument is appended as one word, "--x=8".
	Equals bool
	// Pairs: overrides are two words, KEY VALUE, at the end of the command line, with no options
	// after them.
	Pairs bool
	// Last are beginnings of words that stay at the end: nothing is appended after them.
	Last []string
}

// A word is one occurrence of an argument.
type word struct {
	at       int  // index of the name
	attached bool // the value is in the same word
	prefix   int  // length of the part before an attached value
}

// value returns the explicit value of an argument, or of a flag, and their number of words.
func (a Argv) value(argv []string, w word, flag bool) (text string, words int, explicit bool) {
	if w.attached {
		return argv[w.at][w.prefix:], 1, true
	}
	if w.at+1 == len(argv) {
		return "", 1, false
	}
	next := argv[w.at+1]
	explicit = !optionLike(next)
	if flag {
		_, explicit = Truth(next)
		explicit = explicit && (a.Booleans || strings.EqualFold(next, "true") || strings.EqualFold(next, "false"))
	}
	if !explicit {
		return "", 1, false
	}
	return next, 2, true
}

// replaced returns the command line with another value in the place of an explicit one.
func (w word) replaced(argv []string, value string) []string {
	next := slices.Clone(argv)
	if w.attached {
		next[w.at] = next[w.at][:w.prefix] + value
	} else {
		next[w.at+1] = value
	}
	return next
}

// occurrences lists the occurrences of an argument, up to a bare "--".
func (a Argv) occurrences(argv []string, name string) []word {
	var found []word
	for i := 1; i < len(argv) && argv[i] != "--"; i++ {
		head, _, equals := strings.Cut(argv[i], "=")
		switch {
		case a.same(head, name):
			found = append(found, word{at: i, attached: equals, prefix: len(head) + 1})
		case shortWithNumber(argv[i], name):
			found = append(found, word{at: i, attached: true, prefix: len(name)})
		}
	}
	return found
}

// shortWithNumber recognises "-b8".
func shortWithNumber(word, name string) bool {
	return len(name) == 2 && name[0] == '-' && name[1] != '-' && len(word) > 2 &&
		strings.HasPrefix(word, name) && word[2] >= '0' && word[2] <= '9'
}

func (a Argv) same(word, name string) bool {
	if word == name {
		return true
	}
	if !strings.HasPrefix(word, "--") || !strings.HasPrefix(name, "--") {
		return false
	}
	written := word
	word, name = a.plain(word), a.plain(name)
	if word == name {
		return true
	}
	if len(word) < 5 || !strings.HasPrefix(name, word) || !slices.Contains(a.Short, "--"+name) {
		return false
	}
	if a.Other != nil && a.Other(written) {
		return false
	}
	return !slices.ContainsFunc(a.Short, func(other string) bool {
		return a.plain(other) != name && strings.HasPrefix(a.plain(other), word)
	})
}

// plain is a long argument without its dashes, with underscores for those inside it if both are
// the same.
func (a Argv) plain(name string) string {
	if !a.Dashes {
		return name[2:]
	}
	return strings.ReplaceAll(name[2:], "-", "_")
}

// last is the occurrence that counts: in argparse, the last one wins.
func (a Argv) last(argv []string, name string) (word, bool) {
	found := a.occurrences(argv, name)
	if name == "" || len(found) == 0 {
		return word{at: -1}, false
	}
	return found[len(found)-1], true
}

// Has reports whether an argument occurs.
func (a Argv) Has(argv []string, name string) bool { return a.At(argv, name) >= 0 }

// At is the index of the counting occurrence of an argument; -1: none.
func (a Argv) At(argv []string, name string) int {
	w, _ := a.last(argv, name)
	return w.at
}

// ErrNoValue is the error for an argument without a value.
var ErrNoValue = errors.New("no value follows")

// Get returns an argument's value. An argument without one is an error.
func (a Argv) Get(argv []string, name string) (string, bool, error) {
	w, found := a.last(argv, name)
	if !found {
		return "", false, nil
	}
	text, _, explicit := a.value(argv, w, false)
	if !explicit {
		return "", true, fmt.Errorf("%w %s", ErrNoValue, argv[w.at])
	}
	return text, true, nil
}

// optionLike reports whether a word is an option rather than a value: a negative number and a
// lone dash are values.
func optionLike(word string) bool {
	return len(word) > 1 && word[0] == '-' && (word[1] < '0' || word[1] > '9') && word[1] != '.'
}

// Set returns the command line with an argument's value replaced in its written form ("--a b" or
// "--a=b"). An absent argument is appended, as two words or with Equals as one, before a bare
// "--".
func (a Argv) Set(argv []string, name, value string) []string {
	w, found := a.last(argv, name)
	switch {
	case !found && a.Equals:
		return a.Append(argv, name+"="+value)
	case !found:
		return a.Append(argv, name, value)
	}
	if _, _, explicit := a.value(argv, w, false); explicit {
		return w.replaced(argv, value)
	}
	return slices.Insert(slices.Clone(argv), w.at+1, value)
}

// Append returns the command line with words at its end, before a bare "--" and before the words
// that stay last; with Pairs, directly after the program.
func (a Argv) Append(argv []string, words ...string) []string {
	if a.Pairs {
		return slices.Insert(slices.Clone(argv), min(1, len(argv)), words...)
	}
	end := len(argv)
	for i := 1; i < end; i++ {
		last := slices.ContainsFunc(a.Last, func(beginning string) bool { return strings.HasPrefix(argv[i], beginning) })
		if argv[i] == "--" || last {
			end = i
		}
	}
	return slices.Insert(slices.Clone(argv), end, words...)
}

// Flag returns the truth value of a flag: "--x", "--x True", "--x=false", or
// its opposite no ("--no-x"; may be empty). The last one wins.
func (a Argv) Flag(argv []string, name, no string) (value, found bool, err error) {
	yes, there := a.last(argv, name)
	if a.At(argv, no) > yes.at {
		return false, true, nil
	}
	text, _, explicit := a.value(argv, yes, true)
	if !there || !explicit {
		return there, there, nil
	}
	value, known := Truth(text)
	if !known {
		return false, true, fmt.Errorf("%q is neither true nor false", text)
	}
	return value, true, nil
}

// SetFlag returns the command line with a flag set. An explicit value is replaced by its opposite
// in the same style. Without one, the flag is removed if its absence has the wanted value.
// Otherwise it is appended: bare for true; for false as no, or with the word False if there is no
// such argument.
func (a Argv) SetFlag(argv []string, name, no string, value, absent bool) ([]string, error) {
	old, found, err := a.Flag(argv, name, no)
	if err != nil {
		return nil, err
	}
	if old == value && found || !found && value == absent {
		return slices.Clone(argv), nil
	}
	if w, _ := a.last(argv, name); w.at > a.At(argv, no) {
		if text, _, explicit := a.value(argv, w, true); explicit {
			return w.replaced(argv, Opposite(text)), nil
		}
	}
	next := a.remove(a.remove(argv, name, true), no, true)
	switch {
	case value == absent:
		return next, nil
	case value:
		return a.Append(next, name), nil
	case no != "":
		return a.Append(next, no), nil
	case a.Equals:
		return a.Append(next, name+"=False"), nil
	}
	return a.Append(next, name, "False"), nil
}

// Remove returns the command line without any occurrence of an argument and its value.
func (a Argv) Remove(argv []string, name string) []string { return a.remove(argv, name, false) }

func (a Argv) remove(argv []string, name string, flag bool) []string {
	next := slices.Clone(argv)
	if name == "" {
		return next
	}
	for _, w := range slices.Backward(a.occurrences(next, name)) {
		_, words, _ := a.value(next, w, flag)
		next = slices.Delete(next, w.at, w.at+words)
	}
	return next
}

// truths pairs each word for true with its word for false.
var truths = [][2]string{{"true", "false"}, {"yes", "no"}, {"on", "off"}, {"t", "f"}, {"y", "n"}, {"1", "0"}}

// Truth reads a word for true or false, in any case.
func Truth(text string) (value, known bool) {
	for _, pair := range truths {
		for i, word := range pair {
			if strings.EqualFold(text, word) {
				return i == 0, true
			}
		}
	}
	return false, false
}

// Opposite returns the other truth word, in the same case.
func Opposite(text string) string {
	for _, pair := range truths {
		for i, word := range pair {
			if !strings.EqualFold(text, word) {
				continue
			}
			other := pair[1-i]
			switch {
			case text == strings.ToLower(text):
				return other
			case text == strings.ToUpper(text):
				return strings.ToUpper(other)
			}
			return strings.ToUpper(other[:1]) + other[1:]
		}
	}
	return text
}

// Override returns the value of a word key=value, or of the pair KEY VALUE. Pluses before the
// key, as Hydra writes them, do not count. The last one wins.
func (a Argv) Override(argv []string, key string) (string, bool) {
	w, found := a.override(argv, key)
	if !found {
		return "", false
	}
	text, _, _ := a.value(argv, w, false)
	return text, true
}

// SetOverride returns the command line with an override set. A pair is put at the end. A word is
// put after those that follow the option under, which is itself appended if it is absent; if
// under is empty, the word is appended.
func (a Argv) SetOverride(argv []string, under, key, value string) []string {
	w, found := a.override(argv, key)
	word, at := key+"="+value, slices.Index(argv, under)
	switch {
	case found:
		return w.replaced(argv, value)
	case a.Pairs:
		return append(slices.Clone(argv), key, value)
	case under == "":
		return a.Append(argv, word)
	case at < 1:
		return a.Append(argv, under, word)
	}
	for at++; at < len(argv) && !optionLike(argv[at]); at++ {
		continue
	}
	return slices.Insert(slices.Clone(argv), at, word)
}

// RemoveOverride returns the command line without the overrides of a key.
func (a Argv) RemoveOverride(argv []string, key string) []string {
	next := slices.Clone(argv)
	for w, found := a.override(next, key); found; w, found = a.override(next, key) {
		next = slices.Delete(next, w.at, w.at+map[bool]int{true: 1, false: 2}[w.attached])
	}
	return next
}

// override is the override that counts. The key of a pair is not an option's value, and its value follows it.
func (a Argv) override(argv []string, key string) (w word, found bool) {
	for i := len(argv) - 1; i >= 1; i-- {
		if a.Pairs && i < len(argv)-1 && argv[i] == key && (i < 2 || !optionLike(argv[i-1])) {
			return word{at: i}, true
		}
		head, _, equals := strings.Cut(argv[i], "=")
		if !a.Pairs && equals && strings.TrimLeft(head, "+") == strings.TrimLeft(key, "+") {
			return word{at: i, attached: true, prefix: len(head) + 1}, true
		}
	}
	return word{}, false
}

// Beginning returns the rest of the last word with the beginning.
func Beginning(argv []string, beginning string) (rest string, found bool) {
	for _, word := range argv[min(1, len(argv)):] {
		if r, has := strings.CutPrefix(word, beginning); has {
			rest, found = r, true
		}
	}
	return rest, found
}

// SetBeginning returns the command line with the word that has the beginning replaced, or
// appended at the very end if there is none.
func SetBeginning(argv []string, beginning, rest string) []string {
	next := slices.Clone(argv)
	for i := len(next) - 1; i >= 1; i-- {
		if strings.HasPrefix(next[i], beginning) {
			next[i] = beginning + rest
			return next
		}
	}
	return append(next, beginning+rest)
}
