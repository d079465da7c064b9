package format

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/strategy"
)

// choice is { choose = { fp32 = [], bf16 = ["--amp", "--dtype", "bf16"] } }: words
// of the command for each value.
type choice struct {
	onCommand
	words map[strategy.Value][]string
	under string // the option behind which overrides among them stand
}

var choiceSpecs = []spec[choice]{
	{"choose", "what each value of a knob is spelt by: words of the command, or keys of a file", func(c *choice) any { return leaf(c.readWords) }, ""},
	{"under", "the option behind which overrides among the words are put", func(c *choice) any { return &c.under }, ""},
}

// eitherChoice reads a choice of words, or of the keys of a file.
type eitherChoice struct{ kind[choice] }

func (e eitherChoice) read(n *table, p *Place) Kind {
	inner := n.open("choose")
	for _, value := range inner.Keys() {
		if spelt, _ := inner.Get(value); isA[map[string]any](spelt) {
			return kind[keyChoice](keyChoiceSpecs).read(n, p)
		}
	}
	return e.kind.read(n, p)
}

func (c *choice) readWords(n *table, key string) {
	inner := n.open(key)
	c.words = map[strategy.Value][]string{}
	for _, value := range inner.Keys() {
		inner.knobValue(n.k, value, value)
		words := inner.Words(value)
		if len(words) > 0 && !strings.HasPrefix(words[0], "-") && !strings.Contains(words[0], "=") {
			inner.fault(value, "%q is no argument and no override: it neither starts with a dash nor has an =", words[0])
		}
		for other, taken := range c.words {
			if slices.Equal(words, taken) {
				inner.fault(max(value, string(other)), "has the same words as %s", min(value, string(other)))
			}
		}
		c.words[strategy.Value(value)] = words
	}
}

func (c choice) String() string { return "arguments " + strings.Join(c.options(), ", ") }

// Present: a choice of no words is one, too.
func (c choice) Present(*Draft) bool { return true }

func (c choice) Values() []strategy.Value { return slices.Collect(maps.Keys(c.words)) }

func (c choice) Arguments() []string {
	return slices.DeleteFunc(c.options(), func(name string) bool { return !startsWithDashes(name) })
}

// optionsOf are the options that make a value.
func (c choice) optionsOf(value strategy.Value) []Option { return OptionsOf(c.words[value]) }

// options names every argument that any choice uses.
func (c choice) options() []string {
	names := map[string]bool{}
	for _, words := range c.words {
		for _, o := range OptionsOf(words) {
			names[o.Name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// holds reports whether the command has the option, with its value.
func (c choice) holds(d *Draft, o Option) (bool, error) {
	switch {
	case o.Override:
		value, found := d.grammar.Override(d.Argv, o.Name)
		return found && value == o.Value, nil
	case o.Bare:
		on, found, err := d.args.flag([]string{o.Name}, "")
		return found && on == true, err
	}
	value, found, err := d.args.get([]string{o.Name})
	if errors.Is(err, ErrNoValue) {
		return false, nil // without a value it is another choice's flag
	}
	return found && fmt.Sprint(value) == o.Value, err
}

// Read is the choice all of whose options the command has; of several, the one
// with the most.
func (c choice) Read(d *Draft) (any, bool, error) {
	best, most, ties := strategy.Value(""), -1, 0
	for _, value := range slices.Sorted(maps.Keys(c.words)) {
		options := OptionsOf(c.words[value])
		all := true
		for _, o := range options {
			has, err := c.holds(d, o)
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
	case most <= 0 && c.stray(d):
		return "", false, errors.New("the arguments make none of the choices that the recipe knows")
	}
	return string(best), most >= 0, nil
}

// stray reports an option of some choice that is on, although no choice is made.
func (c choice) stray(d *Draft) bool {
	for _, words := range c.words {
		for _, o := range OptionsOf(words) {
			if o.Bare {
				if on, err := c.holds(d, o); on && err == nil {
					return true
				}
			}
		}
	}
	return false
}

// Write takes away the options of the other choices and adds those of one.
func (c choice) Write(d *Draft, word any, _ bool) error {
	value := strategy.Value(fmt.Sprint(word))
	words, known := c.words[value]
	if !known {
		return fmt.Errorf("has no words for %q", value)
	}
	wanted := OptionsOf(words)
	for _, other := range slices.Sorted(maps.Keys(c.words)) {
		for _, o := range OptionsOf(c.words[other]) {
			if !slices.ContainsFunc(wanted, func(w Option) bool { return w.Name == o.Name }) {
				if err := c.drop(d, o); err != nil {
					return err
				}
			}
		}
	}
	for _, o := range wanted {
		if err := c.add(d, o); err != nil {
			return err
		}
	}
	return nil
}

func (c choice) drop(d *Draft, o Option) error {
	switch {
	case o.Override:
		d.Argv = d.grammar.RemoveOverride(d.Argv, o.Name)
		return nil
	case !o.Bare:
		return d.args.remove(o.Name)
	}
	on, found, err := d.args.flag([]string{o.Name}, "")
	if err != nil || !found || on == false {
		return err
	}
	return d.args.setFlag([]string{o.Name}, "", false, false)
}

func (c choice) add(d *Draft, o Option) error {
	if has, err := c.holds(d, o); err != nil || has {
		return err
	}
	switch {
	case o.Override:
		return override{key: o.Name, under: c.under}.Write(d, o.Value, false)
	case o.Bare:
		return d.args.setFlag([]string{o.Name}, "", true, false)
	}
	return d.args.set([]string{o.Name}, o.Value)
}
