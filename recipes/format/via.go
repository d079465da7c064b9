package format

import (
	"fmt"
	"strings"
)

// A Via is what names a file: a place whose word is the file's path, the n-th
// word of the command, or a key of a file that is named itself.
type Via struct {
	namer
	// any: the value is a file's path whatever its ending, also beside other vias.
	any bool
}

// A namer holds the path of a file.
type namer interface {
	// spelling is the namer as a person would point to it.
	spelling() string
	// follow is the path that it holds.
	follow(d *Draft) (file string, there bool)
	// files are those that follow looks into.
	files(d *Draft) []string
	// point makes it name another file in place of the one that it names.
	point(d *Draft, from, to string) error
}

// String is the via as a person would point to it.
func (v Via) String() string { return v.spelling() }

// A pathHolder is a place of the command that can hold a path.
type pathHolder interface {
	Kind
	follow(d *Draft) (string, bool)
}

// held makes a namer of a place of the command.
type held struct {
	pathHolder
	name string
}

func (h held) spelling() string                   { return h.name }
func (h held) files(*Draft) []string              { return nil }
func (h held) point(d *Draft, _, to string) error { return h.Write(d, to, false) }

// positional is the n-th word that is no option, from 1.
type positional int

func (n positional) spelling() string      { return fmt.Sprintf("word %d", int(n)) }
func (n positional) files(*Draft) []string { return nil }

func (n positional) follow(d *Draft) (string, bool) {
	words := plainWords(d.Argv)
	if len(words) < int(n) {
		return "", false
	}
	return words[n-1], true
}

func (n positional) point(d *Draft, from, to string) error {
	d.replaceWords(from, to)
	return nil
}

// keyOf is a key of a file that is named itself.
type keyOf struct {
	path string
	in   Via
}

func (k keyOf) spelling() string { return k.path + " in the file of " + k.in.String() }

func (k keyOf) follow(d *Draft) (string, bool) {
	file, there := k.in.follow(d)
	if !there {
		return "", false
	}
	value, there, err := d.Value(file, k.path)
	text, isText := value.(string)
	return text, there && err == nil && isText
}

func (k keyOf) files(d *Draft) []string {
	files := k.in.files(d)
	if file, there := k.in.follow(d); there {
		files = append(files, file)
	}
	return files
}

func (k keyOf) point(d *Draft, _, to string) error {
	outer, _ := k.in.follow(d)
	if _, changed := d.named[outer]; !changed {
		d.named[outer] = k.in
	}
	return d.setValue(outer, k.path, to)
}

// viaArgument is an argument that names a file.
func viaArgument(name string) Via { return Via{namer: held{argument{names: spellings{name}}, name}} }

// viaText is a via as it is written.
type viaText struct {
	arg, env, override, path string
	word                     int
	in                       *Via
	any                      bool
}

var viaSpecs = []spec[viaText]{
	{"arg", "an argument", func(v *viaText) any { return &v.arg }, ""},
	{"env", "a variable", func(v *viaText) any { return &v.env }, ""},
	{"override", "a word `config=conf.yaml`", func(v *viaText) any { return &v.override }, ""},
	{"word", "the n-th word that is no option", func(v *viaText) any { return &v.word }, ""},
	{"path", "a key of a file", func(v *viaText) any { return &v.path }, ""},
	{"via", "what names that file", func(v *viaText) any { return &v.in }, ""},
	{"any", "the value is a file whatever its ending, also next to other vias", func(v *viaText) any { return &v.any }, ""},
}

// vias reads one via or a list of them.
func (n *table) vias(key string) []Via {
	tables, ok := n.Tables(key)
	if !ok {
		n.fault(key, `want { arg = "--config" } or { env = "CONFIG" }`)
	}
	var vias []Via
	for _, inner := range tables {
		if via := n.of(inner, names(viaSpecs)).via(); via != nil {
			vias = append(vias, *via)
		}
	}
	return vias
}

// via reads what names a file; nil, and a problem, where it is nothing.
func (n *table) via() *Via {
	var text viaText
	fill(n, viaSpecs, &text)
	n.done()
	via, given := Via{any: text.any}, 0
	for _, way := range []struct {
		set bool
		namer
	}{
		{text.arg != "", viaArgument(text.arg).namer}, {text.env != "", held{variable{name: text.env}, text.env}},
		{text.override != "", held{override{key: text.override}, text.override}}, {text.word > 0, positional(text.word)}, {text.path != "", nil},
	} {
		if way.set {
			via.namer = way.namer
			given++
		}
	}
	switch {
	case given != 1:
		n.fault("", `want { arg = "--config" }, { env = "CONFIG" }, { override = "config" } or { word = 1 }`)
	case (text.path != "") != n.Has("via"):
		n.fault("", `a key of a file is { path = "deepspeed", via = { word = 1 } }`)
	case text.path == "":
		return &via
	case text.in != nil:
		via.namer = keyOf{text.path, *text.in}
		return &via
	}
	return nil
}

// plainWords are the words of a command that are no options, no option's value
// and no key=value.
func plainWords(argv []string) []string {
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
