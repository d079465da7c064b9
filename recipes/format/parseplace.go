package format

import (
	"fmt"

	"github.com/gpurun/gpurun/strategy"
)

// kinds are the kinds of place, by the key that only a place of the kind has.
var kinds = []struct {
	key   string
	parse func(n *table, k strategy.Knob, p *Place) Kind
}{
	{"arg", parseArgument}, {"env", parseVariable}, {"override", parseOverride}, {"word", parseBeginning}, {"assigned", parseAssigned},
	{"path", parseKey}, {"choose", parseChoose}, {"call", parseCalled},
}

// parsePlace reads one place, of a knob or, without one, of something else.
func parsePlace(n *table, k strategy.Knob) Place {
	p := Place{Auto: n.truth("auto"), There: n.truth("there"), Versions: parseVersions(n)}
	p.Words, p.Reads = parseWords(n, k, "values"), parseWords(n, k, "reads")
	if k == strategy.PinMemory && p.Words == nil && !n.Has("choose") {
		p.Words = map[strategy.Value][]any{"true": {true}, "false": {false}}
	}
	var said []string
	for _, kind := range kinds {
		n.known(kind.key)
		if !n.Has(kind.key) {
			continue
		}
		if said = append(said, kind.key); len(said) == 1 {
			p.Kind = kind.parse(n, k, &p)
		}
	}
	checkPlace(n, k, p, said)
	return p
}

// checkPlace reports what contradicts itself; said are the kinds that the place
// says it is of.
func checkPlace(n *table, k strategy.Knob, p Place, said []string) {
	file := n.Has("file") || n.Has("via")
	switch {
	case len(said) == 0 && n.Has("file"):
		n.fault("file", "the value's place in the file is missing: path = \"train.batch\"")
	case len(said) == 0:
		n.fault("", "says no place: want one of arg, env, override, file with path, choose, call")
	case len(said) > 1:
		n.fault(said[1], "%s and %s are two places: make them a list", said[0], said[1])
	case len(said) == 1 && p.InFile() != nil && !file:
		n.fault(said[0], "no file is named: want file = \"conf.yaml\", or via = { arg = \"--config\" }")
	case len(said) == 1 && p.InFile() == nil && file:
		n.fault(said[0], "a file goes with a path, not with %s", said[0])
	}
	if _, isCall := p.Kind.(called); n.Has("keyword") && !isCall {
		n.fault("keyword", "a keyword goes with a call")
	}
	if no, _ := n.Get("no"); no != nil && !p.flag() {
		n.fault("no", "only a flag has an opposite: give it values that are true and false")
	}
	if k.Whole() && (p.Words != nil || n.Has("choose")) {
		n.fault("", "the knob's values are whole numbers, which need no words")
	}
}

// parseChoose reads what each value is spelt by: words of the command, or keys of
// a file.
func parseChoose(n *table, k strategy.Knob, p *Place) Kind {
	inner := n.tableAt("choose")
	for _, value := range inner.Keys() {
		if spelt, _ := inner.Get(value); isTable(spelt) {
			return parseKeyChoice(n, k, p)
		}
	}
	return parseChoice(n, k)
}

func isTable(value any) bool {
	_, is := value.(map[string]any)
	return is
}

// parseWords reads a table from values to the framework's words: one, or a list
// of which the first is written.
func parseWords(n *table, k strategy.Knob, key string) map[strategy.Value][]any {
	if n.known(key); !n.Has(key) {
		return nil
	}
	inner := n.child(key, inWords)
	words, owner := map[strategy.Value][]any{}, map[string]string{}
	for _, value := range inner.Keys() {
		inner.knobValue(k, value, value)
		spelt, _ := inner.Get(value)
		list, isList := spelt.([]any)
		if !isList {
			list = []any{spelt}
		}
		if len(list) == 0 {
			inner.fault(value, "want the framework's word")
		}
		for _, word := range list {
			switch word.(type) {
			case string, bool, int64, float64:
			default:
				inner.fault(value, "want a word, a number or a truth value, not %v", word)
				continue
			}
			text := fmt.Sprint(word)
			if other, taken := owner[text]; taken {
				inner.fault(value, "%q already stands for %s", text, other)
			}
			owner[text] = value
			words[strategy.Value(value)] = append(words[strategy.Value(value)], word)
		}
	}
	return words
}
