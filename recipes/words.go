package recipes

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/recipes/patch"
	"github.com/gpurun/gpurun/strategy"
)

// get reads the knob's value at one place. The error errAuto says that there is
// one, which the framework takes from elsewhere.
func (d *draft) get(k strategy.Knob, p Place) (strategy.Value, bool, error) {
	switch {
	case p.Choose != nil:
		return d.chosen(p)
	case p.Pick != nil:
		return d.picked(p)
	}
	word, found, err := d.raw(p)
	if err != nil || !found {
		return "", found, err
	}
	value, err := p.understand(k, word)
	return value, true, err
}

// understand turns the framework's word into the knob's value.
func (p Place) understand(k strategy.Knob, word any) (strategy.Value, error) {
	text := fmt.Sprint(word)
	if k.Whole() && text == "auto" {
		return "", errAuto // the framework chooses
	}
	if k.Whole() {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if x, isFloat := word.(float64); isFloat && x == float64(int(x)) {
			n, err = int(x), nil
		}
		if _, none := strconv.ParseFloat(strings.TrimSpace(text), 64); p.Chosen && none == nil && (err != nil || n < least(k)) {
			return "", errAuto
		}
		if err != nil || n < least(k) {
			return "", fmt.Errorf("%q is not a whole number of at least %d", text, least(k))
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
	for _, table := range []map[strategy.Value][]any{p.Values, p.Reads} {
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
	case p.Values == nil && slices.Contains(words, strategy.Value(text)):
		return strategy.Value(text), nil
	case p.Values == nil:
		return "", fmt.Errorf("%q is none of %s: say with values = { … } what each is called", text, join(words))
	}
	return "", fmt.Errorf("%q is none of the words that the recipe knows: %s", text, p.words())
}

// words lists what the place can hold, for messages.
func (p Place) words() string {
	var all []string
	for _, words := range p.Values {
		for _, w := range words {
			all = append(all, fmt.Sprint(w))
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func join(values []strategy.Value) string {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = string(v)
	}
	return strings.Join(words, ", ")
}

// least is the smallest sensible value of a whole-number knob.
func least(k strategy.Knob) int {
	if k == strategy.DataloaderWorkers {
		return 0
	}
	return 1
}
