package format

import (
	"cmp"
	"fmt"
	"strings"
)

// A Via names a file: an argument, a variable or an override whose value is the file's path, the
// n-th word of the command, or a key of a file that another via names.
type Via struct {
	arg, env, override, path string
	word                     int // from 1, options not counted
	in                       *Via
	// any: the value is a file's path for any ending, also next to other vias.
	any bool
}

var viaSpecs = []spec[Via]{
	{"arg", "an argument", func(v *Via) any { return &v.arg }, ""},
	{"env", "a variable", func(v *Via) any { return &v.env }, ""},
	{"override", "a word `config=conf.yaml`", func(v *Via) any { return &v.override }, ""},
	{"word", "the n-th word that is no option", func(v *Via) any { return &v.word }, ""},
	{"path", "a key of a file", func(v *Via) any { return &v.path }, ""},
	{"via", "what names that file", func(v *Via) any { return &v.in }, ""},
	{"any", "the value is a file, whatever its ending, also next to other vias", func(v *Via) any { return &v.any }, ""},
}

func (v *Via) check(n *keyTable) {
	given := 0
	for _, set := range []bool{v.arg != "", v.env != "", v.override != "", v.word > 0, v.path != ""} {
		if set {
			given++
		}
	}
	switch {
	case given != 1:
		n.fault("", `want { arg = "--config" }, { env = "CONFIG" }, { override = "config" } or { word = 1 }`)
	case (v.path != "") != n.Has("via"):
		n.fault("", `a key of a file is { path = "deepspeed", via = { word = 1 } }`)
	}
}

// vias reads one via or a list of them.
func (n *keyTable) vias(key string) []Via {
	if _, ok := n.Tables(key); !ok {
		n.fault(key, `want { arg = "--config" } or { env = "CONFIG" }`)
		return nil
	}
	return many(n, key, viaSpecs)
}

// String is the via in the form in which a person would name it.
func (v Via) String() string {
	switch {
	case v.word > 0:
		return fmt.Sprintf("word %d", v.word)
	case v.path != "":
		return v.path + " in the file of " + v.in.String()
	}
	return cmp.Or(v.arg, v.env, v.override)
}

// follow returns the path of the file.
func (v Via) follow(d *Draft) (file string, there bool) {
	switch words := PlainWords(d.Argv); {
	case v.arg != "":
		return d.Argument(v.arg)
	case v.env != "":
		return d.Variable(v.env)
	case v.override != "":
		return d.grammar.Override(d.Argv, v.override)
	case v.word > 0 && len(words) >= v.word:
		return words[v.word-1], true
	case v.path == "":
		return "", false
	}
	outer, there := v.in.follow(d)
	if !there {
		return "", false
	}
	value, there, err := d.Value(outer, v.path)
	text, isText := value.(string)
	return text, there && err == nil && isText
}

// files lists the files that follow reads.
func (v Via) files(d *Draft) []string {
	if v.path == "" {
		return nil
	}
	files := v.in.files(d)
	if file, there := v.in.follow(d); there {
		files = append(files, file)
	}
	return files
}

// point replaces the file that it names by another one.
func (v Via) point(d *Draft, from, to string) error {
	switch {
	case v.arg != "":
		return d.args.set([]string{v.arg}, to)
	case v.env != "":
		d.SetVariable(v.env, to)
	case v.override != "":
		d.Argv = d.grammar.SetOverride(d.Argv, "", v.override, to)
	case v.word > 0:
		d.replaceWords(from, to)
	default:
		outer, _ := v.in.follow(d)
		if _, changed := d.named[outer]; !changed {
			d.named[outer] = *v.in
		}
		return d.setValue(outer, v.path, to)
	}
	return nil
}

// PlainWords are the words of a command that are neither options nor an option's value nor
// key=value.
func PlainWords(argv []string) []string {
	var words []string
	for i := 1; i < len(argv); i++ {
		before := argv[i-1]
		optioned := i > 1 && strings.HasPrefix(before, "-") && !strings.Contains(before, "=")
		if !strings.HasPrefix(argv[i], "-") && !optioned && !strings.Contains(argv[i], "=") {
			words = append(words, argv[i])
		}
	}
	return words
}
