package recipes

import (
	"bytes"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// finish turns the draft into a change whose files go into dir.
func (d *draft) finish(dir string) (Change, error) {
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
		if !d.alone[file] && file != d.sole {
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
	change.Argv, change.Env = d.argv, d.env
	change.Diff = d.diff(change)
	return change, nil
}

// nextChanged is a changed file that has no copy yet, those first that others
// name; empty: all have.
func (d *draft) nextChanged() string {
	left := slices.DeleteFunc(d.changedFiles(), func(file string) bool { return d.copies[file] != "" })
	for _, file := range left {
		if d.named[file].In != nil {
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
func (d *draft) changedFiles() []string {
	var changed []string
	for file, text := range d.files {
		if inline(file) && string(text) != file || !inline(file) && !bytes.Equal(text, d.original.Files[file]) {
			changed = append(changed, file)
		}
	}
	names := slices.Sorted(slices.Values(changed))
	if d.sole != "" && len(names) > 0 {
		names = slices.DeleteFunc(names, func(file string) bool { return file == d.sole })
		names = append(names, d.sole)
	}
	return names
}

// point makes the command name to where it named file.
func (d *draft) point(file, to string) error {
	via := d.named[file]
	switch {
	case via.Env != "":
		d.setVariable(via.Env, to)
		return nil
	case via.Arg != "" && d.sole != "":
		return d.setSole(via.Arg, to)
	case via.Arg != "":
		d.argv = d.grammar.Set(d.argv, via.Arg, to)
		return nil
	case via.Override != "":
		d.argv = d.grammar.SetOverride(d.argv, "", via.Override, to)
		return nil
	case via.In != nil:
		outer, _ := d.follow(*via.In)
		if _, changed := d.named[outer]; !changed {
			d.named[outer] = *via.In
		}
		return d.setValue(outer, via.Path, to)
	}
	d.replaceWords(file, to)
	return nil
}

// names reports whether the command names a file in a word or a variable.
func (d *draft) names(file string) bool {
	probe := *d
	probe.argv, probe.env = slices.Clone(d.argv), maps.Clone(d.env)
	return probe.replaceWords(file, file+".copy")
}

// replaceWords replaces a file's path where it is a word, what follows the = of
// a word, or a whole variable.
func (d *draft) replaceWords(file, to string) bool {
	replaced := false
	for i := 1; i < len(d.argv); i++ {
		head, tail, equals := strings.Cut(d.argv[i], "=")
		switch {
		case samePath(d.argv[i], file):
			d.argv[i], replaced = to, true
		case equals && samePath(tail, file):
			d.argv[i], replaced = head+"="+to, true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.original.Env)) {
		if samePath(d.original.Env[name], file) {
			d.setVariable(name, to)
			replaced = true
		}
	}
	return replaced
}

func samePath(a, b string) bool {
	return a != "" && path.Clean(a) == path.Clean(b)
}
