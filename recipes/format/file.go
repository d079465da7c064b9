package format

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/recipes/edit"
	"github.com/gpurun/gpurun/strategy"
)

// InFile is the file of a place.
type InFile struct {
	// path is the file's path as the command writes it, if no via names one.
	path string
	// vias name the file; of several, the first existing one counts.
	vias []Via
	// alone: the file includes no others, so a copy needs none of its siblings.
	alone bool
	// optional: a file that is not named has no values.
	optional bool
	auto     bool
}

func (in InFile) inFile() *InFile { return &in }

// Find returns the path of the file, and the via that names it; nil if none does.
func (in InFile) Find(d *Draft) (file string, named *Via, found bool) {
	for i, via := range in.vias {
		value, there := via.follow(d)
		_, known := edit.FormatOf(value, nil)
		if there && value != "" && (known || via.Any || inline(value) || len(in.vias) == 1 && !in.optional) {
			return value, &in.vias[i], true
		}
	}
	if in.path == "" {
		return "", nil, false
	}
	if len(in.vias) > 0 && !d.names(in.path) {
		return in.path, &in.vias[0], true
	}
	return in.path, nil, true
}

// Change sets a value of the file, and records what has to name the copy.
func (in InFile) Change(d *Draft, at string, value any) error {
	file, via, found := in.Find(d)
	if !found {
		return fmt.Errorf("the command names no file that holds %s", at)
	}
	if err := d.setValue(file, at, value); err != nil {
		return err
	}
	d.alone[file] = in.alone
	if via != nil {
		d.named[file] = *via
	}
	return nil
}

// names lists the arguments and variables that can name the file.
func (in InFile) names() string {
	names := make([]string, len(in.vias))
	for i, via := range in.vias {
		names[i] = via.String()
	}
	return strings.Join(names, " or ")
}

// Present reports whether the command names the file.
func (in InFile) Present(d *Draft) bool {
	_, _, found := in.Find(d)
	return found
}

// Files lists the file, and those on the way to it.
func (in InFile) Files(d *Draft) []string {
	var files []string
	if file, _, found := in.Find(d); found && !inline(file) {
		files = append(files, file)
	}
	for _, via := range in.vias {
		files = append(files, via.files(d)...)
	}
	return files
}

// Unwritable: the command has to name a changed copy.
func (in InFile) Unwritable(d *Draft) string {
	file, via, found := in.Find(d)
	if !found || via != nil || d.names(file) {
		return ""
	}
	return file + " is named by no argument or variable of the command, so gpurun cannot pass a changed copy to the job: " +
		"set via = { arg = … } or via = { env = … }"
}

// missing is the reason why a value of the file cannot be written.
func (in InFile) missing(d *Draft, what string) string {
	if in.Present(d) {
		return ""
	}
	return fmt.Sprintf("the command names no file that holds the %s: it needs %s", what, in.names())
}

// Arguments returns none, because the place itself is not an argument.
func (in InFile) Arguments() []string { return nil }

// inline reports whether the command has the text of a file in place of its path.
func inline(file string) bool { return strings.HasPrefix(strings.TrimSpace(file), "{") }

// Shown is a file's name in messages.
func Shown(file string) string {
	if inline(file) {
		return "the JSON on the command line"
	}
	return file
}

// fileKey is { path = "train.batch", via = { arg = "--config" } }: a value in a JSON,
// YAML or TOML file.
type fileKey struct {
	InFile
	path string // "train.batch", "groups.0.lr"
}

func (k fileKey) String() string { return "key " + k.path }

func (k fileKey) Read(d *Draft) (any, bool, error) {
	file, _, named := k.Find(d)
	if !named {
		if k.auto || k.optional {
			return nil, false, nil
		}
		return nil, false, fmt.Errorf("the command names no file that holds %s: it needs %s", k.path, k.names())
	}
	word, found, err := d.Value(file, k.path)
	if err != nil || !found || word == nil {
		return nil, false, err
	}
	if word == "auto" {
		return nil, true, ErrAuto
	}
	return word, true, nil
}

func (k fileKey) Write(d *Draft, word any, _ bool) error { return k.Change(d, k.path, word) }
func (k fileKey) Missing(d *Draft) string                { return k.missing(d, k.String()) }
func (k fileKey) Values() []strategy.Value               { return nil }

// KeyByVariable is the place of a key in the file that an environment variable names.
func KeyByVariable(path, variable string) Place {
	return Place{PlaceKind: fileKey{path: path, InFile: InFile{vias: []Via{{Env: variable, Any: true}}, optional: true}}}
}

// Key is the place of a key in the file that one of these arguments names.
func Key(path string, arguments ...string) Place {
	k := fileKey{path: path, InFile: InFile{optional: true}}
	for _, name := range arguments {
		k.vias = append(k.vias, Via{Arg: name})
	}
	return Place{PlaceKind: k}
}

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

// A siblings is a kind of place that knows the places of the other settings of its parser, its call or its
// file: a framework's settings have the same names wherever they are given.
type siblings interface {
	// sibling is the place of a setting, if this is the place of the setting from.
	sibling(from, setting string) (PlaceKind, bool)
	// inside are the places of a key, if the setting is a table or names a file.
	inside(from, setting, key string) []PlaceKind
}

// Sibling is the place of another setting of the framework that is given as the setting from is at this place;
// false if this is not a place of from.
func (p Place) Sibling(from, setting string) (Place, bool) {
	s, ok := p.PlaceKind.(siblings)
	if !ok {
		return Place{}, false
	}
	kind, ok := s.sibling(from, setting)
	return Place{PlaceKind: kind}, ok
}

// Inside lists the places of a key of another setting that is given as the setting from is at this place, and is
// a table, or the path of a file.
func (p Place) Inside(from, setting, key string) []Place {
	s, ok := p.PlaceKind.(siblings)
	if !ok {
		return nil
	}
	var places []Place
	for _, kind := range s.inside(from, setting, key) {
		places = append(places, Place{PlaceKind: kind})
	}
	return places
}

func (a argument) sibling(from, setting string) (PlaceKind, bool) {
	if !slices.Contains(a.names, "--"+from) {
		return nil, false
	}
	return argument{names: spellings{"--" + setting}}, true
}

func (a argument) inside(from, setting, key string) []PlaceKind {
	if _, ok := a.sibling(from, setting); !ok {
		return nil
	}
	return []PlaceKind{fileKey{path: key, InFile: InFile{vias: []Via{{Arg: "--" + setting, Any: true}}, optional: true}}}
}

func (k fileKey) sibling(from, setting string) (PlaceKind, bool) {
	table, is := strings.CutSuffix("."+k.path, "."+from)
	if !is {
		return nil, false
	}
	k.path, k.optional = strings.TrimPrefix(table+"."+setting, "."), true
	return k, true
}

func (k fileKey) inside(from, setting, key string) []PlaceKind {
	kind, ok := k.sibling(from, setting)
	if !ok {
		return nil
	}
	table := kind.(fileKey)
	places := []PlaceKind{fileKey{path: table.path + "." + key, InFile: table.InFile}}
	for _, via := range table.vias {
		named := Via{Path: table.path, In: &via}
		places = append(places, fileKey{path: key, InFile: InFile{vias: []Via{named}, optional: true}})
	}
	return places
}

func (c called) sibling(from, setting string) (PlaceKind, bool) {
	if c.keyword != from {
		return nil, false
	}
	c.keyword, c.where = setting, nil
	return c, true
}

// inside of a call returns nothing: code computes the table.
func (called) inside(string, string, string) []PlaceKind { return nil }
