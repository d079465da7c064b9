package recipes

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gpurun/gpurun/recipes/patch"
	"github.com/gpurun/gpurun/strategy"
)

// errAuto says that the place leaves the value to the framework.
var errAuto = errors.New("left to the framework")

// String is the place as a person would point to it.
func (p Place) String() string {
	switch {
	case p.Arg != "":
		return "argument " + p.Arg
	case p.Env != "":
		return "variable " + p.Env
	case p.Override != "":
		return "override " + p.Override
	case p.Word != "":
		return "word " + p.Word
	case p.Assigned != "":
		return "assignment to " + p.Assigned
	case p.Choose != nil:
		return "arguments " + strings.Join(p.options(), ", ")
	case p.Pick != nil:
		return "keys " + strings.Join(p.keys(), ", ")
	}
	return "key " + p.Path
}

// inFile reports whether the place is in a file of its own.
func (p Place) inFile() bool { return p.Path != "" || p.Pick != nil }

// flag reports whether the place holds a truth value.
func (p Place) flag() bool {
	for _, words := range p.Values {
		for _, word := range words {
			if _, isBool := word.(bool); !isBool {
				return false
			}
		}
	}
	return len(p.Values) > 0
}

// present reports whether the command has the place at all; for a place in a
// file, whether it has the file.
func (d *draft) present(p Place) bool {
	switch {
	case p.Arg != "" && d.sole == "":
		return d.grammar.Has(d.argv, d.spelling(p)) || p.No != "" && d.grammar.Has(d.argv, p.No)
	case p.Arg != "":
		_, found := d.argument(p.Arg)
		return found
	case p.Env != "":
		_, set := d.variable(p.Env)
		return set
	case p.Override != "":
		_, found := patch.Override(d.argv, p.Override)
		return found
	case p.Word != "":
		_, found := patch.Beginning(d.argv, p.Word)
		return found
	case p.Assigned != "":
		_, found := d.assigned(p.Assigned)
		return found
	case p.inFile():
		_, _, found := d.file(p)
		return found
	}
	return true
}

// raw reads what a place holds, in the framework's own words.
func (d *draft) raw(p Place) (word any, found bool, err error) {
	switch {
	case p.Arg != "" && d.sole != "":
		word, found, err = d.soleValue(p.Arg)
		return word, found && word != nil, err
	case p.Arg != "" && p.flag():
		return d.grammar.Flag(d.argv, d.spelling(p), p.No)
	case p.Arg != "":
		return d.grammar.Get(d.argv, d.spelling(p))
	case p.Word != "":
		word, found = patch.Beginning(d.argv, p.Word)
		return word, found, nil
	case p.Assigned != "":
		word, found = d.assigned(p.Assigned)
		return word, found, nil
	case p.Env != "":
		word, found = d.variable(p.Env)
		return word, found && word != "", nil
	case p.Override != "":
		word, found = patch.Override(d.argv, p.Override)
		return word, found, nil
	}
	return d.rawInFile(p)
}

func (d *draft) rawInFile(p Place) (any, bool, error) {
	file, _, named := d.file(p)
	if !named {
		if p.Auto || p.Optional {
			return nil, false, nil
		}
		return nil, false, fmt.Errorf("the command names no file that holds %s: it needs %s", p.Path, p.vias())
	}
	word, found, err := d.value(file, p.Path)
	if err != nil || !found || word == nil {
		return nil, false, err
	}
	if word == "auto" {
		return nil, true, errAuto
	}
	return word, true, nil
}

// vias lists the arguments and variables that can name the place's file.
func (p Place) vias() string {
	var names []string
	for _, via := range p.Via {
		names = append(names, via.String())
	}
	return strings.Join(names, " or ")
}

// set changes the knob's value at one place; absence is what the job does
// without the place.
func (d *draft) set(k strategy.Knob, p Place, value, absence strategy.Value) error {
	switch {
	case p.Choose != nil:
		return d.choose(p, value)
	case p.Pick != nil:
		return d.pick(p, value)
	}
	old, found, err := d.raw(p)
	if errors.Is(err, errAuto) && p.Auto || p.Auto && !found && err == nil {
		return nil
	}
	if err != nil && !errors.Is(err, errAuto) {
		return err
	}
	word, err := p.write(k, value)
	if err != nil {
		return err
	}
	if truth, isBool := word.(bool); isBool && p.Arg != "" && d.sole == "" {
		d.argv, err = d.grammar.SetFlag(d.argv, d.spelling(p), p.No, truth, p.truth(absence))
		return err
	}
	return d.put(p, inStyle(old, word))
}

// put writes a word at a place that holds one.
func (d *draft) put(p Place, word any) error {
	switch {
	case p.Arg != "" && d.sole != "":
		return d.setSole(p.Arg, word)
	case p.Arg != "":
		d.argv = d.grammar.Set(d.argv, d.spelling(p), fmt.Sprint(word))
	case p.Word != "":
		d.argv = patch.SetBeginning(d.argv, p.Word, fmt.Sprint(word))
	case p.Assigned != "":
		return fmt.Errorf("%s is Python, which is read and not changed", p)
	case p.Env != "":
		d.setVariable(p.Env, fmt.Sprint(word))
	case p.Override != "":
		d.argv = d.grammar.SetOverride(d.argv, p.Under, p.Override, fmt.Sprint(word))
	default:
		return d.changeFile(p, p.Path, word)
	}
	return nil
}

// write is the framework's word for a value.
func (p Place) write(k strategy.Knob, value strategy.Value) (any, error) {
	if n, whole := value.Number(); whole && k.Whole() {
		return int64(n), nil
	}
	if words := p.Values[value]; len(words) > 0 {
		return words[0], nil
	}
	if p.Values != nil {
		return nil, fmt.Errorf("has no word for %q", value)
	}
	return string(value), nil
}

// truth is what a flag's value stands for.
func (p Place) truth(value strategy.Value) bool {
	words := p.Values[value]
	return len(words) > 0 && words[0] == true
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

// String is the via as a person would point to it.
func (v Via) String() string {
	switch {
	case v.Word > 0:
		return fmt.Sprintf("word %d", v.Word)
	case v.In != nil:
		return v.Path + " in the file of " + v.In.String()
	}
	return v.Arg + v.Env + v.Override
}
