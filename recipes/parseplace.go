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
	arg, aliases := parseNames(n)
	p := Place{
		Arg: arg, Aliases: aliases, Word: n.text("word"), Assigned: n.text("assigned"), Under: n.text("under"), Versions: parseVersions(n, "versions"),
		Env: n.text("env"), Override: n.text("override"),
		File: n.text("file"), Path: n.text("path"), No: n.text("no"),
		Alone: n.truth("alone"), Auto: n.truth("auto"), There: n.truth("there"), Chosen: n.truth("chosen"),
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
		{"word", p.Word != ""}, {"assigned", p.Assigned != ""},
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
		vias = append(vias, parseVia(n.inner(table, "via")))
	}
	return vias
}

// parseVia reads one way to a file; a key of a file has a via of its own.
func parseVia(n *node) Via {
	defer n.done()
	via := Via{Any: n.truth("any"), Arg: n.text("arg"), Env: n.text("env"), Override: n.text("override"), Word: n.number("word"), Path: n.text("path")}
	given := 0
	for _, set := range []bool{via.Arg != "", via.Env != "", via.Override != "", via.Word > 0, via.Path != ""} {
		if set {
			given++
		}
	}
	if given != 1 {
		n.fault("", `want { arg = "--config" }, { env = "CONFIG" }, { override = "config" } or { word = 1 }`)
	}
	if table, there := n.tableOf("via"); there || via.Path != "" {
		if via.Path == "" || !there {
			n.fault("", `a key of a file is { path = "deepspeed", via = { word = 1 } }`)
		}
		in := parseVia(n.inner(table, "via"))
		via.In = &in
	}
	return via
}

// parseNames reads an argument, or a list of its names.
func parseNames(n *node) (name string, aliases []string) {
	if _, isList := n.table["arg"].([]any); !isList {
		return n.text("arg"), nil
	}
	names := n.texts("arg")
	if len(names) == 0 {
		n.fault("arg", "want the argument's name")
		return "", nil
	}
	for _, alias := range names[1:] {
		if !strings.HasPrefix(alias, "-") {
			n.fault("arg", fmt.Sprintf("%q is no argument: it does not start with a dash", alias))
		}
	}
	return names[0], names[1:]
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
		if len(words) > 0 && !strings.HasPrefix(words[0], "-") && !strings.Contains(words[0], "=") {
			inner.fault(value, fmt.Sprintf("%q is no argument and no override: it neither starts with a dash nor has an =", words[0]))
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
