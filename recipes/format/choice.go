package format

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/strategy"
)

// wordChoice is { choose = { fp32 = [], bf16 = ["--amp", "--dtype", "bf16"] } }: words
// of the command for each value.
type wordChoice struct {
	onCommand
	words map[strategy.Value][]string
	under string // the option that the overrides among them follow
}

// newChoice reads a choice of words, or of the keys of a file.
func newChoice(n *keyTable, under string, in InFile) PlaceKind {
	inner := n.open("choose")
	words, byValue := wordChoice{words: map[strategy.Value][]string{}, under: under}, map[strategy.Value]map[string]any{}
	for _, value := range inner.Keys() {
		if spelt, _ := inner.Get(value); isA[map[string]any](spelt) {
			byValue[strategy.Value(value)] = spelt.(map[string]any)
		}
	}
	for _, value := range inner.Keys() {
		inner.knobValue(n.k, value, value)
		switch {
		case len(byValue) == 0:
			words.read(inner, value)
		case byValue[strategy.Value(value)] == nil:
			inner.fault(value, "want keys, as its neighbours have: { \"bf16.enabled\" = true }")
		}
	}
	if len(byValue) > 0 {
		return keyChoice{in, byValue}
	}
	return words
}

// read reads the words of a value.
func (c wordChoice) read(n *keyTable, value string) {
	words := n.Words(value)
	if len(words) > 0 && !strings.HasPrefix(words[0], "-") && !strings.Contains(words[0], "=") {
		n.fault(value, "%q is neither an argument nor an override: it does not start with a dash and has no =", words[0])
	}
	for other, taken := range c.words {
		if slices.Equal(words, taken) {
			n.fault(max(value, string(other)), "has the same words as %s", min(value, string(other)))
		}
	}
	c.words[strategy.Value(value)] = words
}

func (c wordChoice) String() string { return "arguments " + strings.Join(c.options(), ", ") }

// Present: a choice of no words is also present.
func (c wordChoice) Present(*Draft) bool { return true }

func (c wordChoice) Values() []strategy.Value { return slices.Collect(maps.Keys(c.words)) }

func (c wordChoice) Arguments() []string {
	return slices.DeleteFunc(c.options(), func(name string) bool { return !startsWithDashes(name) })
}

// optionsOf returns the options of a value.
func (c wordChoice) optionsOf(value strategy.Value) []WordOption { return OptionsOf(c.words[value]) }

// options lists every argument that any choice uses.
func (c wordChoice) options() []string {
	names := map[string]bool{}
	for _, words := range c.words {
		for _, o := range OptionsOf(words) {
			names[o.Name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// holds reports whether the command has the option, with its value.
func (c wordChoice) holds(d *Draft, o WordOption) (bool, error) {
	var value any
	var found bool
	var err error
	switch {
	case o.Override:
		value, found = d.grammar.Override(d.Argv, o.Name)
	case o.Bare:
		value, found, err = d.args.flag([]string{o.Name}, "")
		return found && value == true, err
	default:
		if value, found, err = d.args.get([]string{o.Name}); errors.Is(err, ErrNoValue) {
			return false, nil // without a value it is another choice's flag
		}
	}
	return found && fmt.Sprint(value) == o.Value, err
}

// Read returns the choice for which the command has all options; if there are several, the one
// with the most options.
func (c wordChoice) Read(d *Draft) (any, bool, error) {
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

// stray reports whether an option of some choice is on, although no choice is made.
func (c wordChoice) stray(d *Draft) bool {
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

// Write removes the options of the other choices and adds those of one.
func (c wordChoice) Write(d *Draft, word any, _ bool) error {
	value := strategy.Value(fmt.Sprint(word))
	words, known := c.words[value]
	if !known {
		return fmt.Errorf("has no words for %q", value)
	}
	wanted := OptionsOf(words)
	var err error // the first
	for _, other := range slices.Sorted(maps.Keys(c.words)) {
		for _, o := range OptionsOf(c.words[other]) {
			if !slices.ContainsFunc(wanted, func(w WordOption) bool { return w.Name == o.Name }) {
				err = cmp.Or(err, c.drop(d, o))
			}
		}
	}
	for _, o := range wanted {
		err = cmp.Or(err, c.add(d, o))
	}
	return err
}

func (c wordChoice) drop(d *Draft, o WordOption) error {
	switch {
	case o.Override:
		d.Argv = d.grammar.RemoveOverride(d.Argv, o.Name)
		return nil
	case !o.Bare:
		return d.args.remove(o.Name)
	}
	if on, err := c.holds(d, o); err != nil || !on {
		return err
	}
	return d.args.setFlag([]string{o.Name}, "", false, false)
}

func (c wordChoice) add(d *Draft, o WordOption) error {
	if has, err := c.holds(d, o); err != nil || has {
		return err
	}
	switch {
	case o.Override:
		d.Argv = d.grammar.SetOverride(d.Argv, c.under, o.Name, o.Value)
		return nil
	case o.Bare:
		return d.args.setFlag([]string{o.Name}, "", true, false)
	}
	return d.args.set([]string{o.Name}, o.Value)
}

// keyChoice is { choose = { bf16 = { "bf16.enabled" = true } }, via = … }: several
// keys of a file for each value.
type keyChoice struct {
	InFile
	byValue map[strategy.Value]map[string]any
}

func (c keyChoice) String() string           { return "keys " + strings.Join(c.keys(), ", ") }
func (c keyChoice) Missing(d *Draft) string  { return c.missing(d, c.String()) }
func (c keyChoice) Values() []strategy.Value { return slices.Collect(maps.Keys(c.byValue)) }

// keys lists every key that any value sets.
func (c keyChoice) keys() []string {
	names := map[string]bool{}
	for _, keys := range c.byValue {
		for key := range keys {
			names[key] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Read returns the value for which the file has all keys. A missing key counts as false, and so
// does "auto" next to a key that is true.
func (c keyChoice) Read(d *Draft) (any, bool, error) {
	file, _, named := c.Find(d)
	if !named && c.auto {
		return nil, false, nil
	}
	if !named {
		return nil, false, fmt.Errorf("the command names no file that holds them: it needs %s", c.names())
	}
	autos, held := false, map[string]any{}
	for _, key := range c.keys() {
		value, found, err := d.Value(file, key)
		if err != nil {
			return nil, false, err
		}
		if found && value == "auto" {
			autos = true
		} else if found {
			held[key] = value
		}
	}
	if len(held) == 0 && !autos && c.auto {
		return nil, false, nil
	}
	for _, value := range slices.Sorted(maps.Keys(c.byValue)) {
		if matches(c.byValue[value], held) {
			on := slices.Contains(slices.Collect(maps.Values(c.byValue[value])), any(true))
			if autos && !on {
				return nil, true, ErrAuto
			}
			return string(value), true, nil
		}
	}
	return nil, false, fmt.Errorf("in %s make none of the choices that the recipe knows", file)
}

// matches compares the wanted keys with the existing ones.
func matches(want, held map[string]any) bool {
	for key, value := range want {
		have, there := held[key]
		if !there {
			have = false
		}
		if fmt.Sprint(have) != fmt.Sprint(value) {
			return false
		}
	}
	return true
}

// Write sets the keys of one value. A key that is missing or "auto" stays unchanged if it should
// be false.
func (c keyChoice) Write(d *Draft, word any, _ bool) error {
	value := strategy.Value(fmt.Sprint(word))
	keys, known := c.byValue[value]
	if !known {
		return fmt.Errorf("has no keys for %q", value)
	}
	if _, found, err := c.Read(d); c.auto && (!found && err == nil || errors.Is(err, ErrAuto)) {
		return nil
	}
	file, _, named := c.Find(d)
	if !named {
		return fmt.Errorf("the command names no file that holds %s", strings.Join(c.keys(), ", "))
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		old, found, err := d.Value(file, key)
		if err != nil {
			return err
		}
		if !found && keys[key] == false || found && old == "auto" && (c.auto || keys[key] == false) {
			continue
		}
		if err := c.Change(d, key, keys[key]); err != nil {
			return err
		}
	}
	return nil
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
