package format

import (
	"cmp"
	"fmt"
	"reflect"
	"strings"
)

// A Via names a file: an argument, a variable or an override whose value is the file's path, the
// n-th word of the command, or a key of a file that another via names.
type Via struct {
	Arg      string `toml:"arg"`
	Env      string `toml:"env"`
	Override string `toml:"override"`
	Path     string `toml:"path"`
	Word     int    `toml:"word"` // from 1, options not counted
	In       *Via   `toml:"via"`
	// Any: the value is a file's path for any ending, also next to other vias.
	Any bool `toml:"any"`
}

func (v *Via) check(n *keyTable) {
	given := 0
	for _, set := range []bool{v.Arg != "", v.Env != "", v.Override != "", v.Word > 0, v.Path != ""} {
		if set {
			given++
		}
	}
	switch {
	case given != 1:
		n.fault("", `want { arg = "--config" }, { env = "CONFIG" }, { override = "config" } or { word = 1 }`)
	case (v.Path != "") != n.Has("via"):
		n.fault("", `a key of a file is { path = "deepspeed", via = { word = 1 } }`)
	}
}

// vias reads one via or a list of them.
func (n *keyTable) vias(key string) []Via {
	if _, ok := n.Tables(key); !ok {
		n.fault(key, `want { arg = "--config" } or { env = "CONFIG" }`)
		return nil
	}
	var vias []Via
	n.many(key, reflect.ValueOf(&vias).Elem())
	return vias
}

// String is the via in the form in which a person would name it.
func (v Via) String() string {
	switch {
	case v.Word > 0:
		return fmt.Sprintf("word %d", v.Word)
	case v.Path != "":
		return v.Path + " in the file of " + v.In.String()
	}
	return cmp.Or(v.Arg, v.Env, v.Override)
}

// follow returns the path of the file.
func (v Via) follow(d *Draft) (file string, there bool) {
	switch words := PlainWords(d.Argv); {
	case v.Arg != "":
		return d.Argument(v.Arg)
	case v.Env != "":
		return d.Variable(v.Env)
	case v.Override != "":
		return d.grammar.Override(d.Argv, v.Override)
	case v.Word > 0 && len(words) >= v.Word:
		return words[v.Word-1], true
	case v.Path == "":
		return "", false
	}
	outer, there := v.In.follow(d)
	if !there {
		return "", false
	}
	value, there, err := d.Value(outer, v.Path)
	text, isText := value.(string)
	return text, there && err == nil && isText
}

// files lists the files that follow reads.
func (v Via) files(d *Draft) []string {
	if v.Path == "" {
		return nil
	}
	files := v.In.files(d)
	if file, there := v.In.follow(d); there {
		files = append(files, file)
	}
	return files
}

// point replaces the file that it names by another one.
func (v Via) point(d *Draft, from, to string) error {
	switch {
	case v.Arg != "":
		return d.setArgument([]string{v.Arg}, "", to, false)
	case v.Env != "":
		d.SetVariable(v.Env, to)
	case v.Override != "":
		d.Argv = d.grammar.SetOverride(d.Argv, "", v.Override, to)
	case v.Word > 0:
		d.replaceWords(from, to)
	default:
		outer, _ := v.In.follow(d)
		if _, changed := d.named[outer]; !changed {
			d.named[outer] = *v.In
		}
		return d.setValue(outer, v.Path, to)
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
