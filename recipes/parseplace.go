package recipes

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/strategy"
)

// parsePlace reads one place. What belongs to the knob has been taken already.
func parsePlace(n *node, k strategy.Knob) Place {
	p := Place{
		Arg: n.text("arg"), Env: n.text("env"), Override: n.text("override"),
		File: n.text("file"), Path: n.text("path"), No: n.text("no"),
		Alone: n.truth("alone"), Auto: n.truth("auto"),
		Via: parseVias(n),
	}
	p.Values, p.Reads = parseWords(n, k, "values"), parseWords(n, k, "reads")
	p.Choose, p.Pick = parseChoose(n, k), parsePick(n, k)
	if k == strategy.PinMemory && p.Values == nil && p.Choose == nil && p.Pick == nil {
		p.Values = map[strategy.Value][]any{"true": {true}, "false": {false}}
	}
	checkPlace(n, k, p)
	return p
}

// checkPlace reports what contradicts itself.
func checkPlace(n *node, k strategy.Knob, p Place) {
	var kinds []string
	for _, kind := range []struct {
		name string
		set  bool
	}{
		{"arg", p.Arg != ""}, {"env", p.Env != ""}, {"override", p.Override != ""},
		{"path", p.Path != ""}, {"choose", p.Choose != nil}, {"pick", p.Pick != nil},
	} {
		if kind.set {
			kinds = append(kinds, kind.name)
		}
	}
	switch {
	case len(kinds) == 0 && p.File != "":
		n.fault("file", "the value's place in the file is missing: path = \"train.batch\"")
	case len(kinds) == 0:
		n.fault("", "says no place: want one of arg, env, override, file with path, choose")
	case len(kinds) > 1:
		n.fault(kinds[1], fmt.Sprintf("%s and %s are two places: make them a list", kinds[0], kinds[1]))
	case p.inFile() && p.File == "" && len(p.Via) == 0:
		n.fault(kinds[0], "no file is named: want file = \"conf.yaml\", or via = { arg = \"--config\" }")
	case !p.inFile() && (p.File != "" || len(p.Via) > 0):
		n.fault(kinds[0], "a file goes with a path, not with "+kinds[0])
	}
	if p.Arg != "" && !strings.HasPrefix(p.Arg, "-") {
		n.report(Problem{Key: n.path("arg"), Message: "an argument starts with a dash", Suggest: "--" + p.Arg})
	}
	if p.No != "" && !p.flag() {
		n.fault("no", "only a flag has an opposite: give it values that are true and false")
	}
	if k.Whole() && (p.Values != nil || p.Choose != nil || p.Pick != nil) {
		n.fault("", "the knob's values are whole numbers, which need no words")
	}
}

// parseVias reads one via or a list of them.
func parseVias(n *node) []Via {
	value, there := n.take("via")
	if !there {
		return nil
	}
	tables, ok := tablesOf(value)
	if !ok {
		n.fault("via", `want { arg = "--config" } or { env = "CONFIG" }`)
		return nil
	}
	var vias []Via
	for _, table := range tables {
		inner := n.inner(table, "via")
		via := Via{Arg: inner.text("arg"), Env: inner.text("env")}
		if (via.Arg == "") == (via.Env == "") {
			inner.fault("", `want { arg = "--config" } or { env = "CONFIG" }`)
		}
		inner.done()
		vias = append(vias, via)
	}
	return vias
}

// parseWords reads a table from values to the framework's words: one, or a list
// of which the first is written.
func parseWords(n *node, k strategy.Knob, key string) map[strategy.Value][]any {
	table, there := n.tableOf(key)
	if !there {
		return nil
	}
	inner := n.inner(table, key)
	words, owner := map[strategy.Value][]any{}, map[string]string{}
	for _, value := range slices.Sorted(maps.Keys(table)) {
		checkWord(inner, k, value, value)
		list, isList := table[value].([]any)
		if !isList {
			list = []any{table[value]}
		}
		if len(list) == 0 {
			inner.fault(value, "want the framework's word")
		}
		for _, word := range list {
			switch word.(type) {
			case string, bool, int64, float64:
			default:
				inner.fault(value, fmt.Sprintf("want a word, a number or a truth value, not %v", word))
				continue
			}
			text := fmt.Sprint(word)
			if other, taken := owner[text]; taken {
				inner.fault(value, fmt.Sprintf("%q already stands for %s", text, other))
			}
			owner[text] = value
			words[strategy.Value(value)] = append(words[strategy.Value(value)], word)
		}
	}
	return words
}

// parseChoose reads a table from values to lists of command line words.
func parseChoose(n *node, k strategy.Knob) map[strategy.Value][]string {
	table, there := n.tableOf("choose")
	if !there {
		return nil
	}
	inner := n.inner(table, "choose")
	choose := map[strategy.Value][]string{}
	for value := range table {
		checkWord(inner, k, value, value)
		words := inner.texts(value)
		if len(words) > 0 && !strings.HasPrefix(words[0], "-") {
			inner.fault(value, fmt.Sprintf("%q is no argument: it does not start with a dash", words[0]))
		}
		for other, taken := range choose {
			if slices.Equal(words, taken) {
				inner.fault(max(value, string(other)), "has the same words as "+min(value, string(other)))
			}
		}
		choose[strategy.Value(value)] = words
	}
	return choose
}

// parsePick reads a table from values to tables of keys.
func parsePick(n *node, k strategy.Knob) map[strategy.Value]map[string]any {
	table, there := n.tableOf("pick")
	if !there {
		return nil
	}
	inner := n.inner(table, "pick")
	pick := map[strategy.Value]map[string]any{}
	for value := range table {
		checkWord(inner, k, value, value)
		keys, _ := inner.tableOf(value)
		pick[strategy.Value(value)] = keys
	}
	return pick
}
