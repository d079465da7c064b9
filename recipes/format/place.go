package format

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/recipes/edit"
	"github.com/gpurun/gpurun/strategy"
)

// ErrAuto is the error for a place that leaves the value to the framework.
var ErrAuto = errors.New("left to the framework")

// A PlaceKind is one way of keeping a value: an argument, a variable, a key of a file. Only a
// kind asserts its own type.
type PlaceKind interface {
	// String is the place in the form in which a person would name it.
	String() string
	// Read returns the value at the place, in the framework's own words. The error may be
	// ErrAuto.
	Read(d *Draft) (word any, found bool, err error)
	// Write writes a word at the place. Absence is the job's value without the place, if that is
	// a truth value.
	Write(d *Draft, word any, absence bool) error
	// Files are the files that Read reads, as the command writes them.
	Files(d *Draft) []string
	// Unwritable is the reason why the value at the place cannot be changed, empty if it can;
	// Missing is the reason why an absent place cannot be added.
	Unwritable(d *Draft) string
	Missing(d *Draft) string
	// Arguments are the long arguments that the place uses.
	Arguments() []string
	// Values are the knob's values for which it has a spelling; nil: those for which the place
	// has words.
	Values() []strategy.Value
}

// onCommand has the common methods of most kinds that are part of the command.
type onCommand struct{}

func (onCommand) Files(*Draft) []string    { return nil }
func (onCommand) Unwritable(*Draft) string { return "" }
func (onCommand) Missing(*Draft) string    { return "" }
func (onCommand) Arguments() []string      { return nil }
func (onCommand) Values() []strategy.Value { return nil }

// A Place is one spelling of a knob: its location and its words.
type Place struct {
	PlaceKind
	// Auto: the place only repeats another: a missing file or key, and the value "auto", are not
	// changed.
	Auto bool
	// Chosen: a number that is not a size, such as -1 or 0.7, or the word "auto", makes the
	// framework choose.
	Chosen bool
	// There: one of several alternatives, which is changed only if it has a value.
	There bool
	// Versions are the versions in which the place exists; nil: all.
	Versions Versions
	// Words has the words for each value: the first is written, all are understood. Bools make
	// the place a flag, in a file a truth value.
	Words map[strategy.Value][]any
	// Reads are values that are understood, but never written.
	Reads map[strategy.Value][]any
	// Implied is the knob's value if the place is absent; empty: not known.
	Implied strategy.Value
}

// SetInCode reports whether a call in the job's code sets the place.
func (p Place) SetInCode(d *Draft) bool {
	c, ok := p.PlaceKind.(called)
	return ok && c.set(d)
}

// InCode reports whether the place is an argument of a call in the job's code.
func (p Place) InCode() bool {
	_, is := p.PlaceKind.(called)
	return is
}

// Needs names what a command has to have so that the place exists.
func (p Place) Needs() string {
	if in := p.InFile(); in != nil && len(in.vias) > 0 {
		return in.names()
	}
	if c, ok := p.PlaceKind.(interface{ needs() string }); ok {
		return c.needs()
	}
	return p.String()
}

// Present reports whether the command has the place; for a place in a file, whether it
// names the file.
func (p Place) Present(d *Draft) bool {
	if k, ok := p.PlaceKind.(interface{ Present(d *Draft) bool }); ok {
		return k.Present(d)
	}
	_, found, _ := p.Read(d)
	return found
}

// InFile is the file that the place is in; nil: none.
func (p Place) InFile() *InFile {
	if in, ok := p.PlaceKind.(interface{ inFile() *InFile }); ok {
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

// Put writes a word in the style of the one that it replaces. All values are written with it.
// Absence is the job's value without the place, if that is a truth value.
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

// write returns the framework's word for a value.
func (p Place) write(k strategy.Knob, value strategy.Value) (any, error) {
	if n, whole := value.Number(); whole && k.Whole() {
		return int64(n), nil
	}
	if part, ok := value.Share(); ok && k.Share() {
		return part, nil
	}
	if words := p.Words[value]; len(words) > 0 {
		return words[0], nil
	}
	if p.Words != nil {
		return nil, fmt.Errorf("has no word for %q", value)
	}
	return string(value), nil
}

// inStyle keeps the type of the old value: a number in quotes stays in quotes, and yes becomes
// no.
func inStyle(old, word any) any {
	text, wasText := old.(string)
	if !wasText {
		return word
	}
	if truth, isBool := word.(bool); isBool {
		if was, known := edit.Truth(text); known && was != truth {
			return edit.Opposite(text)
		}
	}
	return fmt.Sprint(word)
}

// startsWithDashes reports whether an argument can be abbreviated.
func startsWithDashes(name string) bool { return strings.HasPrefix(name, "--") }

// Get reads the knob's value. The error is ErrAuto if the framework takes it from elsewhere.
func (p Place) Get(d *Draft, k strategy.Knob) (strategy.Value, bool, error) {
	word, found, err := p.Read(d)
	if err != nil || !found {
		return "", found, err
	}
	value, err := p.Understand(k, word)
	return value, true, err
}

// Understand turns the framework's word into the knob's value.
func (p Place) Understand(k strategy.Knob, word any) (strategy.Value, error) {
	text := fmt.Sprint(word)
	if (k.Whole() || p.Chosen) && text == "auto" {
		return "", ErrAuto // the framework chooses
	}
	if k.Whole() {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if x, isFloat := word.(float64); isFloat && x == float64(int(x)) {
			n, err = int(x), nil
		}
		if _, none := strconv.ParseFloat(strings.TrimSpace(text), 64); p.Chosen && none == nil &&
			(err != nil || n < Least(k)) {
			return "", ErrAuto
		}
		if err != nil || n < Least(k) {
			return "", fmt.Errorf("%q is not a whole number of at least %d", text, Least(k))
		}
		return strategy.Number(n), nil
	}
	if value := strategy.Value(strings.TrimSpace(text)); k.Share() {
		if _, ok := value.Share(); !ok {
			return "", fmt.Errorf("%q is not a number between 0 and 1", text)
		}
		return value, nil
	}
	if p.flag() {
		truth, known := edit.Truth(text)
		if !known {
			return "", fmt.Errorf("%q is neither true nor false", text)
		}
		word = truth
	}
	for _, table := range []map[strategy.Value][]any{p.Words, p.Reads} {
		for _, value := range slices.Sorted(maps.Keys(table)) {
			for _, w := range table[value] {
				if fmt.Sprint(w) == fmt.Sprint(word) {
					return value, nil
				}
			}
		}
	}
	words := strategy.Vocabulary(k)
	switch {
	case words == nil: // any word, such as an optimizer's name
		return strategy.Value(text), nil
	case p.Words == nil && slices.Contains(words, strategy.Value(text)):
		return strategy.Value(text), nil
	case p.Words == nil:
		return "", fmt.Errorf("%q is not one of %s: name each with values = { … }", text, Join(words))
	}
	return "", fmt.Errorf("%q is not one of the words that the recipe knows: %s", text, p.words())
}

// words lists the possible values of the place, for messages.
func (p Place) words() string {
	var all []string
	for _, words := range p.Words {
		for _, w := range words {
			all = append(all, fmt.Sprint(w))
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// Join lists values for messages.
func Join(values []strategy.Value) string {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = string(v)
	}
	return strings.Join(words, ", ")
}

// Least is the smallest sensible value of a whole-number knob.
func Least(k strategy.Knob) int {
	if k == strategy.DataloaderWorkers {
		return 0
	}
	return 1
}

// Writable lists the values for which every one of the places has a word, in vocabulary order.
func Writable(k strategy.Knob, places []Place) []strategy.Value {
	order := strategy.Vocabulary(k)
	var common []strategy.Value
	for i, p := range places {
		own := p.writable(order)
		if i == 0 {
			common = own
			continue
		}
		common = slices.DeleteFunc(common, func(v strategy.Value) bool { return !slices.Contains(own, v) })
	}
	return common
}

// writable lists the values for which a place has words; an open vocabulary comes in alphabetical
// order.
func (p Place) writable(order []strategy.Value) []strategy.Value {
	own := p.Values()
	switch {
	case own != nil:
		slices.Sort(own)
	case p.Words != nil:
		own = slices.Sorted(maps.Keys(p.Words))
	default:
		own = slices.Clone(order)
	}
	if order == nil {
		return own
	}
	slices.SortStableFunc(own, func(a, b strategy.Value) int { return slices.Index(order, a) - slices.Index(order, b) })
	return own
}

// Lacks is the reason why an argument cannot be put on the command line: the job's parser, all of
// whose arguments are known, has none of these names. It is empty if there is one, if it is not
// known, and for arguments that the framework itself adds.
func (d *Draft) Lacks(names ...string) string {
	parser := d.Original.Parser
	if d.Recipe.Definitions == nil || !parser.Complete() || d.all != "" {
		return ""
	}
	for _, name := range names {
		if !strings.HasPrefix(name, "-") || parser.Has(name, d.grammar.Dashes) {
			return ""
		}
	}
	return "the script's parser has no argument " + names[0]
}

// Lacking is the reason why the place cannot be added to the command line; empty if it can, or
// exists.
func (p Place) Lacking(d *Draft) string {
	if names := p.spellings(); names != nil && !p.Present(d) {
		return d.Lacks(names...)
	}
	return ""
}

// spellings are the names of an argument and of its opposite; nil for another place.
func (p Place) spellings() []string {
	if a, ok := p.PlaceKind.(interface{ spellings() []string }); ok {
		return a.spellings()
	}
	return nil
}

// Lacking is the reason why one of the settings that belong to a value cannot be written.
func (knob Knob) Lacking(d *Draft, places []Place, value strategy.Value) string {
	if knob.Own {
		return ""
	}
	for _, p := range places {
		c, ok := p.PlaceKind.(interface {
			optionsOf(strategy.Value) []WordOption
		})
		if !ok {
			continue
		}
		for _, o := range c.optionsOf(value) {
			if why := d.Lacks(o.Name); !o.Override && !d.Has(o.Name) && why != "" {
				return why
			}
		}
	}
	for _, s := range knob.Also {
		if s.When != nil && !slices.Contains(s.When, value) || s.Value == false {
			continue
		}
		if why := s.Place.Lacking(d); why != "" {
			return why
		}
	}
	return ""
}

// DefaultOf is the job's value without the knob's places: the default of its own parser is
// stronger than the recipe's. unknown is the reason why there is none.
func (d *Draft) DefaultOf(k strategy.Knob, knob Knob) (value strategy.Value, unknown string) {
	if knob.Own {
		return cmp.Or(knob.Default, d.ownDefault(k, knob)), ""
	}
	for _, p := range knob.Places {
		if p.Present(d) {
			continue
		}
		for _, name := range p.spellings() {
			v, has := d.parserDefault(name)
			switch {
			case !has:
				continue
			case !v.Known, v.None && k.Whole() && knob.Default != "":
				return "", fmt.Sprintf("the default of %s is computed by the script", name)
			case v.None:
				return knob.Default, ""
			}
			if value, err := p.Understand(k, v.Text); err == nil {
				return value, ""
			}
			return "", fmt.Sprintf("the script's default of %s, %s, is none that the recipe knows", name, v.Text)
		}
	}
	if name := d.undefined(knob); name != "" && slices.Contains(ofLoaders, k) {
		return "", fmt.Sprintf("the script defines no argument %s, and its loader's own number is not known", name)
	}
	return knob.Default, ""
}

// ofLoaders are the knobs whose number a loader has, whether or not an argument gives it.
var ofLoaders = []strategy.Knob{strategy.MicroBatchSize, strategy.EvalBatchSize, strategy.DataloaderWorkers}

// undefined is the name of an argument that holds a knob if the job's own sources define arguments, but none of the
// knob's; empty if one is defined, or if the framework or a file may have it.
func (d *Draft) undefined(knob Knob) string {
	parser, first := d.Original.Parser, ""
	if d.Recipe.Definitions == nil || parser == nil || len(parser.options) == 0 || d.all != "" ||
		len(d.Recipe.Definitions) > 0 && !parser.Complete() {
		return ""
	}
	for _, p := range knob.Places {
		names := p.spellings()
		if len(names) == 0 || p.Present(d) || slices.ContainsFunc(names,
			func(name string) bool { return parser.Has(name, d.grammar.Dashes) }) {
			return ""
		}
		first = cmp.Or(first, names[0])
	}
	return first
}

// ownDefault is the default of the job's own parser for an argument that the user named; empty if it
// is not known.
func (d *Draft) ownDefault(k strategy.Knob, knob Knob) strategy.Value {
	for _, p := range knob.Places {
		for _, name := range p.spellings() {
			if v, has := d.Original.Parser.Default(name); has && v.Known && !v.None {
				if value, err := p.Understand(k, v.Text); err == nil {
					return value
				}
			}
		}
	}
	return ""
}

// parserDefault is a default that the job's own sources give to an argument.
func (d *Draft) parserDefault(name string) (Expression, bool) {
	if d.Recipe.Definitions != nil {
		return d.Original.Parser.Default(name)
	}
	return d.Original.Parser.TrainerDefault(name)
}
