package format

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/recipes/edit"
	"github.com/gpurun/gpurun/strategy"
)

// choice is { choose = { fp32 = [], bf16 = ["--amp", "--dtype", "bf16"] } }, words of the command for each value, or
// { choose = { bf16 = { "bf16.enabled" = true } }, via = … }, several keys of a file.
type choice struct {
	in     *InFile // of the keys; nil: words
	values map[strategy.Value][]spelled
}

// A spelled is one setting of a value: an argument, an override or a key.
type spelled struct {
	PlaceKind
	WordOption
	want any
}

// newChoice reads a choice of words, or of the keys of a file.
func newChoice(n *keyTable, under string, in InFile) PlaceKind {
	inner := n.open("choose")
	c, words := choice{values: map[strategy.Value][]spelled{}}, map[string][]string{}
	for _, value := range inner.Keys() {
		if keys, _ := inner.Get(value); isA[map[string]any](keys) {
			c.in = &in
		}
	}
	for _, value := range inner.Keys() {
		inner.knobValue(n.k, value, value)
		c.values[strategy.Value(value)] = []spelled{}
		if c.in != nil {
			c.readKeys(inner, value)
			continue
		}
		words[value] = inner.Words(value)
		if first := words[value]; len(first) > 0 && !strings.HasPrefix(first[0], "-") && !strings.Contains(first[0], "=") {
			inner.fault(value, "%q is neither an argument nor an override: it does not start with a dash and has no =", first[0])
		}
		for other, taken := range words {
			if other != value && slices.Equal(words[value], taken) {
				inner.fault(max(value, other), "has the same words as %s", min(value, other))
			}
		}
		c.readWords(strategy.Value(value), words[value], under)
	}
	return c
}

func (c choice) readKeys(n *keyTable, value string) {
	keys, _ := n.Get(value)
	table, ok := keys.(map[string]any)
	if !ok {
		n.fault(value, "want keys, as its neighbours have: { \"bf16.enabled\" = true }")
	}
	for _, key := range slices.Sorted(maps.Keys(table)) {
		s := spelled{fileKey{*c.in, key}, WordOption{Name: key}, table[key]}
		c.values[strategy.Value(value)] = append(c.values[strategy.Value(value)], s)
	}
}

func (c choice) readWords(value strategy.Value, words []string, under string) {
	for _, o := range OptionsOf(words) {
		s := spelled{argument{names: spellings{o.Name}, flag: o.Bare}, o, o.Value}
		switch {
		case o.Override:
			s.PlaceKind = override{key: o.Name, under: under}
		case o.Bare:
			s.want = true
		}
		c.values[value] = append(c.values[value], s)
	}
}

func (c choice) String() string {
	if c.in != nil {
		return "keys " + strings.Join(c.names(), ", ")
	}
	return "arguments " + strings.Join(c.names(), ", ")
}

// names lists every argument or key of any value.
func (c choice) names() []string {
	var names []string
	for _, all := range c.values {
		for _, s := range all {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (c choice) inFile() *InFile { return c.in }

// Present: a choice of no words is also present.
func (c choice) Present(d *Draft) bool { return c.in == nil || c.in.Present(d) }

func (c choice) Files(d *Draft) []string {
	if c.in == nil {
		return nil
	}
	return c.in.Files(d)
}

func (c choice) Unwritable(d *Draft) string {
	if c.in == nil {
		return ""
	}
	return c.in.Unwritable(d)
}

func (c choice) Missing(d *Draft) string {
	if c.in == nil {
		return ""
	}
	return c.in.missing(d, c.String())
}

func (c choice) Values() []strategy.Value { return slices.Collect(maps.Keys(c.values)) }

func (c choice) Arguments() []string {
	return slices.DeleteFunc(c.names(), func(name string) bool { return c.in != nil || !startsWithDashes(name) })
}

// optionsOf returns the options of a value.
func (c choice) optionsOf(value strategy.Value) (options []WordOption) {
	for _, s := range c.values[value] {
		if c.in == nil {
			options = append(options, s.WordOption)
		}
	}
	return options
}

// holds reports whether the job has the setting, and whether it has any value, or leaves it to the framework. A key
// that is missing counts as false.
func (c choice) holds(d *Draft, s spelled) (on, found, auto bool, err error) {
	word, found, err := s.Read(d)
	switch {
	case errors.Is(err, ErrAuto):
		return s.want == false, true, true, nil
	case errors.Is(err, edit.ErrNoValue):
		return false, true, false, nil // without a value it is another value's flag
	case !found:
		return c.in != nil && s.want == false, false, false, err
	}
	return fmt.Sprint(word) == fmt.Sprint(s.want), true, false, err
}

// Read returns the value of which the job has all settings; of several, the one with the most words.
func (c choice) Read(d *Draft) (any, bool, error) {
	if c.in != nil && (c.in.auto || c.in.optional) && !c.in.Present(d) {
		return nil, false, nil
	}
	best, most, ties, stray, given, auto := strategy.Value(""), -1, 0, false, false, false
	for _, value := range slices.Sorted(maps.Keys(c.values)) {
		all := true
		for _, s := range c.values[value] {
			on, found, left, err := c.holds(d, s)
			if err != nil {
				return nil, false, err
			}
			all, given, auto = all && on, given || found, auto || left
			stray = stray || on && s.Bare
		}
		switch n := len(c.values[value]); {
		case all && (n > most && c.in == nil || most < 0):
			best, most, ties = value, n, 1
		case all && n == most:
			ties++
		}
	}
	switch {
	case c.in != nil && !given && c.in.auto:
		return nil, false, nil
	case c.in != nil && most < 0:
		file, _, _ := c.in.Find(d)
		return nil, false, fmt.Errorf("in %s make none of the choices that the recipe knows", file)
	case c.in != nil && auto && !slices.ContainsFunc(c.values[best], func(s spelled) bool { return s.want == true }):
		return nil, true, ErrAuto
	case c.in == nil && most > 0 && ties > 1:
		return nil, false, errors.New("more than one of the choices is on the command line")
	case c.in == nil && most <= 0 && stray:
		return nil, false, errors.New("the arguments make none of the choices that the recipe knows")
	}
	return string(best), most >= 0, nil
}

// Write removes the words of the other values, and adds the settings of one. A key that is missing or left to the
// framework stays unchanged if it should be false.
func (c choice) Write(d *Draft, word any, _ bool) error {
	wanted, known := c.values[strategy.Value(fmt.Sprint(word))]
	if !known {
		return fmt.Errorf("has no words for %q", word)
	}
	repeats := c.in != nil && c.in.auto
	if repeats {
		if _, found, err := c.Read(d); !found && err == nil || errors.Is(err, ErrAuto) {
			return nil
		}
	}
	for _, other := range slices.Sorted(maps.Keys(c.values)) {
		for _, s := range c.values[other] {
			if c.in == nil && !slices.ContainsFunc(wanted, func(w spelled) bool { return w.Name == s.Name }) {
				if err := c.drop(d, s); err != nil {
					return err
				}
			}
		}
	}
	for _, s := range wanted {
		on, _, auto, err := c.holds(d, s)
		if err == nil && !on && !(auto && repeats) {
			err = s.Write(d, s.want, false)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// drop removes a word of another value.
func (c choice) drop(d *Draft, s spelled) error {
	switch {
	case s.Override:
		d.Argv = d.grammar.RemoveOverride(d.Argv, s.Name)
		return nil
	case !s.Bare:
		return d.removeArgument(s.Name)
	}
	if on, _, _, err := c.holds(d, s); err != nil || !on {
		return err
	}
	return d.setArgument([]string{s.Name}, "", false, false)
}

// A WordOption is one argument of a choice, with its value if it has one.
type WordOption struct {
	Name  string
	Value string
	Bare  bool
	// Override: a word name=value.
	Override bool
}

// OptionsOf reads the words of a choice: a word with a leading dash is an argument, and the word
// after it is its value. Other words with = are overrides.
func OptionsOf(words []string) []WordOption {
	var options []WordOption
	for _, word := range words {
		head, value, equals := strings.Cut(word, "=")
		switch {
		case strings.HasPrefix(word, "-") && equals:
			options = append(options, WordOption{Name: head, Value: value})
		case equals && (len(options) == 0 || !options[len(options)-1].Bare):
			options = append(options, WordOption{Name: head, Value: value, Override: true})
		case strings.HasPrefix(word, "-") || len(options) == 0:
			options = append(options, WordOption{Name: word, Bare: true})
		default:
			last := &options[len(options)-1]
			last.Value, last.Bare = word, false
		}
	}
	return options
}
