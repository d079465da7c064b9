package format

import (
	"bytes"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Finish turns the draft into a change whose files go into dir.
func (d *Draft) Finish(dir string) (Change, error) {
	change := Change{Files: map[string][]byte{}, Siblings: map[string]string{}}
	folders := map[string]string{}
	for file := d.nextChanged(); file != ""; file = d.nextChanged() {
		if inline(file) {
			d.copies[file] = file
			if err := d.point(file, string(d.files[file])); err != nil {
				return Change{}, err
			}
			continue
		}
		from := path.Dir(file)
		folder, known := folders[from]
		if !known {
			folder = "config"
			if n := len(folders); n > 0 {
				folder += "-" + strconv.Itoa(n+1)
			}
			folders[from] = folder
		}
		name := path.Join(folder, path.Base(file))
		change.Files[name] = d.files[file]
		d.copies[file] = name
		if !d.alone[file] && file != d.args.file() {
			change.Siblings[folder] = from
		}
		if err := d.point(file, path.Join(dir, name)); err != nil {
			return Change{}, err
		}
	}
	for file, name := range d.copies {
		if !inline(file) {
			change.Files[name] = d.files[file]
		}
	}
	change.Argv, change.Env, change.Calls = d.Argv, d.Env, d.Calls
	change.Diff = d.diff(change)
	return change, nil
}

// nextChanged is a changed file that has no copy yet, those first that others
// name; empty: all have.
func (d *Draft) nextChanged() string {
	left := slices.DeleteFunc(d.changedFiles(), func(file string) bool { return d.copies[file] != "" })
	for _, file := range left {
		if via, named := d.named[file]; named && len(via.files(d)) > 0 {
			return file
		}
	}
	if len(left) == 0 {
		return ""
	}
	return left[0]
}

// changedFiles lists the files whose text is no longer the original's. A file
// that names another one comes last, so that it can still be pointed to a copy.
func (d *Draft) changedFiles() []string {
	var changed []string
	for file, text := range d.files {
		if inline(file) && string(text) != file || !inline(file) && !bytes.Equal(text, d.Original.Files[file]) {
			changed = append(changed, file)
		}
	}
	names := slices.Sorted(slices.Values(changed))
	if d.args.file() != "" && len(names) > 0 {
		names = slices.DeleteFunc(names, func(file string) bool { return file == d.args.file() })
		names = append(names, d.args.file())
	}
	return names
}

// point makes the command name to where it named file.
func (d *Draft) point(file, to string) error {
	via, named := d.named[file]
	if !named {
		d.replaceWords(file, to)
		return nil
	}
	return via.point(d, file, to)
}

// names reports whether the command names a file in a word or a variable.
func (d *Draft) names(file string) bool {
	probe := *d
	probe.Argv, probe.Env = slices.Clone(d.Argv), maps.Clone(d.Env)
	return probe.replaceWords(file, file+".copy")
}

// replaceWords replaces a file's path where it is a word, what follows the = of
// a word, or a whole variable.
func (d *Draft) replaceWords(file, to string) bool {
	replaced := false
	for i := 1; i < len(d.Argv); i++ {
		head, tail, equals := strings.Cut(d.Argv[i], "=")
		switch {
		case samePath(d.Argv[i], file):
			d.Argv[i], replaced = to, true
		case equals && samePath(tail, file):
			d.Argv[i], replaced = head+"="+to, true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Original.Env)) {
		if samePath(d.Original.Env[name], file) {
			d.SetVariable(name, to)
			replaced = true
		}
	}
	return replaced
}

func samePath(a, b string) bool {
	return a != "" && path.Clean(a) == path.Clean(b)
}
