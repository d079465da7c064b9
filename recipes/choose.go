package recipes

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/recipes/patch"
	"github.com/gpurun/gpurun/strategy"
)

// An option is one argument of a choice, and its value where it has one.
type option struct {
	name  string
	value string
	bare  bool
	// override: a word name=value.
	override bool
}

// optionsOf reads the words of a choice: a word with a leading dash is an
// argument, the word behind it its value. Other words with = are overrides.
func optionsOf(words []string) []option {
	var options []option
	for _, word := range words {
		head, value, equals := strings.Cut(word, "=")
		switch {
		case strings.HasPrefix(word, "-") && equals:
			options = append(options, option{name: head, value: value})
		case equals && (len(options) == 0 || !options[len(options)-1].bare):
			options = append(options, option{name: head, value: value, override: true})
		case strings.HasPrefix(word, "-") || len(options) == 0:
			options = append(options, option{name: word, bare: true})
		default:
			last := &options[len(options)-1]
			last.value, last.bare = word, false
		}
	}
	return options
}

// options names every argument that any choice uses.
func (p Place) options() []string {
	names := map[string]bool{}
	for _, words := range p.Choose {
		for _, o := range optionsOf(words) {
			names[o.name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// holds reports whether the command has the option, with its value.
func (d *draft) holds(o option) (bool, error) {
	switch {
	case o.override:
		value, found := patch.Override(d.argv, o.name)
		return found && value == o.value, nil
	case d.sole != "":
		word, found, err := d.soleValue(o.name)
		if o.bare {
			return found && word == true, err
		}
		return found && fmt.Sprint(word) == o.value, err
	case o.bare:
		on, found, err := d.grammar.Flag(d.argv, o.name, "")
		return found && on, err
	}
	// Without a value it is another choice's flag.
	value, found, err := d.grammar.Get(d.argv, o.name)
	return found && err == nil && value == o.value, nil
}

// chosen is the choice all of whose options the command has; of several, the one
// with the most.
func (d *draft) chosen(p Place) (strategy.Value, bool, error) {
	best, most, ties := strategy.Value(""), -1, 0
	for _, value := range slices.Sorted(maps.Keys(p.Choose)) {
		options := optionsOf(p.Choose[value])
		all := true
		for _, o := range options {
			has, err := d.holds(o)
			if err != nil {
				return "", false, err
			}
			all = all && has
		}
		switch {
		case all && len(options) > most:
			best, most, ties = value, len(options), 1
		case all && len(options) == most:
			ties++
		}
	}
	switch {
	case most > 0 && ties > 1:
		return "", false, errors.New("more than one of the choices is on the command line")
	case most <= 0 && d.stray(p):
		return "", false, errors.New("the arguments make none of the choices that the recipe knows")
	}
	return best, most >= 0, nil
}

// stray reports an option of some choice that is on, although no choice is made.
func (d *draft) stray(p Place) bool {
	for _, words := range p.Choose {
		for _, o := range optionsOf(words) {
			if o.bare {
				if on, err := d.holds(o); on && err == nil {
					return true
				}
			}
		}
	}
	return false
}

// choose takes away the options of the other choices and adds those of one.
func (d *draft) choose(p Place, value strategy.Value) error {
	words, known := p.Choose[value]
	if !known {
		return fmt.Errorf("has no words for %q", value)
	}
	wanted := optionsOf(words)
	for _, other := range slices.Sorted(maps.Keys(p.Choose)) {
		for _, o := range optionsOf(p.Choose[other]) {
			if !slices.ContainsFunc(wanted, func(w option) bool { return w.name == o.name }) {
				if err := d.drop(o); err != nil {
					return err
				}
			}
		}
	}
	for _, o := range wanted {
		if err := d.add(p, o); err != nil {
			return err
		}
	}
	return nil
}

func (d *draft) drop(o option) error {
	switch {
	case o.override:
		d.argv = d.grammar.RemoveOverride(d.argv, o.name)
		return nil
	case d.sole != "":
		word, found, err := d.soleValue(o.name)
		if err != nil || !found || word == false {
			return err
		}
		if !o.bare {
			return fmt.Errorf("%s cannot be taken out of %s", soleKey(o.name), d.sole)
		}
		return d.setSole(o.name, false)
	case o.bare:
		next, err := d.grammar.SetFlag(d.argv, o.name, "", false, false)
		d.argv = next
		return err
	}
	d.argv = d.grammar.RemoveValued(d.argv, o.name)
	return nil
}

func (d *draft) add(p Place, o option) error {
	if has, err := d.holds(o); err != nil || has {
		return err
	}
	switch {
	case o.override:
		d.argv = d.grammar.SetOverride(d.argv, p.Under, o.name, o.value)
		return nil
	case d.sole != "" && o.bare:
		return d.setSole(o.name, true)
	case d.sole != "":
		return d.setSole(o.name, o.value)
	case o.bare:
		next, err := d.grammar.SetFlag(d.argv, o.name, "", true, false)
		d.argv = next
		return err
	}
	d.argv = d.grammar.Set(d.argv, o.name, o.value)
	return nil
}
