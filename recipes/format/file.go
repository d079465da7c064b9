package format

import (
	"fmt"
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
