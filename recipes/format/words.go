package format

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/recipes/patch"
	"github.com/gpurun/gpurun/strategy"
)

// Get reads the knob's value. The error ErrAuto says that there is one, which the
// framework takes from elsewhere.
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
		if _, none := strconv.ParseFloat(strings.TrimSpace(text), 64); p.Chosen && none == nil && (err != nil || n < Least(k)) {
			return "", ErrAuto
		}
		if err != nil || n < Least(k) {
			return "", fmt.Errorf("%q is not a whole number of at least %d", text, Least(k))
		}
		return strategy.Number(n), nil
	}
	if p.flag() {
		truth, known := patch.Truth(text)
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
	case words == nil: // open words, such as an optimizer's name
		return strategy.Value(text), nil
	case p.Words == nil && slices.Contains(words, strategy.Value(text)):
		return strategy.Value(text), nil
	case p.Words == nil:
		return "", fmt.Errorf("%q is none of %s: say with values = { … } what each is called", text, Join(words))
	}
	return "", fmt.Errorf("%q is none of the words that the recipe knows: %s", text, p.words())
}

// words lists what the place can hold, for messages.
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

// Writable are the words that every one of the places has, in vocabulary order.
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

// writable are the values that a place has words for; an open vocabulary comes
// in alphabetical order.
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
	slices.SortFunc(own, func(a, b strategy.Value) int { return slices.Index(order, a) - slices.Index(order, b) })
	return own
}
