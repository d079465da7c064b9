package format

import (
	"bytes"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/strategy"
)

// Finish turns the draft into a change whose files go into dir.
func (d *Draft) Finish(dir string) (strategy.Command, error) {
	change := strategy.Command{Files: map[string][]byte{}, Siblings: map[string]string{}}
	folders := map[string]string{}
	for file := d.nextChanged(); file != ""; file = d.nextChanged() {
		if inline(file) {
			d.copies[file] = file
			if err := d.point(file, string(d.files[file])); err != nil {
				return strategy.Command{}, err
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
		if !d.alone[file] && file != d.all {
			change.Siblings[folder] = from
		}
		if err := d.point(file, path.Join(dir, name)); err != nil {
			return strategy.Command{}, err
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

// Edited turns the draft into a change of the files themselves.
func (d *Draft) Edited() (strategy.Command, error) {
	change := strategy.Command{Files: map[string][]byte{}}
	for _, file := range d.changedFiles() {
		if !inline(file) {
			change.Files[file] = d.files[file]
		} else if err := d.point(file, string(d.files[file])); err != nil {
			return strategy.Command{}, err
		}
	}
	change.Argv, change.Env, change.Calls = d.Argv, d.Env, d.Calls
	return change, nil
}

// nextChanged returns a changed file that has no copy yet, first those that other files name;
// empty: all have one.
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

// changedFiles lists the files whose text is no longer the original's. A file that names another
// one comes last, so that it can still be pointed to a copy.
func (d *Draft) changedFiles() []string {
	var changed []string
	for file, text := range d.files {
		if inline(file) && string(text) != file || !inline(file) && !bytes.Equal(text, d.Original.Files[file]) {
			changed = append(changed, file)
		}
	}
	names := slices.Sorted(slices.Values(changed))
	if d.all != "" && len(names) > 0 {
		names = slices.DeleteFunc(names, func(file string) bool { return file == d.all })
		names = append(names, d.all)
	}
	return names
}

// point makes the command name to in place of file.
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

// replaceWords replaces a file's path in a word, in the part of a word after =, or in a variable
// that consists of it.
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

// diff shows the change for people: the files, then the command with one option per line, then
// the variables that change.
func (d *Draft) diff(change strategy.Command) string {
	var b strings.Builder
	for _, file := range d.changedFiles() {
		if inline(file) {
			continue
		}
		b.Write(Unified(file, d.Original.Files[file], d.copies[file], d.files[file]))
	}
	b.Write(Unified("command", optionLines(d.Original.Argv), "command", optionLines(change.Argv)))
	var old, next bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(change.Env)) {
		if value, set := d.Original.Env[name]; set {
			old.WriteString(name + "=" + value + "\n")
		}
		next.WriteString(name + "=" + change.Env[name] + "\n")
	}
	b.Write(Unified("environment", old.Bytes(), "environment", next.Bytes()))
	b.Write(Unified("calls in the process", d.callLines(change.Calls, false), "calls in the process",
		d.callLines(change.Calls, true)))
	return b.String()
}

// callLines prints the calls of the process in Python; next: with their new arguments.
func (d *Draft) callLines(calls []strategy.Call, next bool) []byte {
	var b bytes.Buffer
	for _, c := range calls {
		value := "…"
		switch {
		case next:
			value = Literal(c.To)
		case c.From != nil:
			value = Literal(c.From)
		}
		fmt.Fprintf(&b, "%s(%s=%s)\n", called{name: c.Name, where: c.Where}.spelled(d), c.Keyword, value)
	}
	return b.Bytes()
}

// Literal formats a number, a word or a truth value in Python.
func Literal(value any) string {
	switch v := value.(type) {
	case bool:
		if v {
			return "True"
		}
		return "False"
	case string:
		return strconv.Quote(v)
	}
	return fmt.Sprint(value)
}

// Unified is a diff without the line that names the tool. As in git's, a name that is not a
// single line of text is quoted.
func Unified(oldName string, old []byte, newName string, next []byte) []byte {
	text := diff.Diff(oneLine(oldName), old, oneLine(newName), next)
	if i := bytes.IndexByte(text, '\n'); i >= 0 {
		return text[i+1:]
	}
	return nil
}

func oneLine(name string) string {
	if strings.ContainsFunc(name, unicode.IsControl) {
		return strconv.Quote(name)
	}
	return name
}

// optionLines prints a command with one option, and its values, per line.
func optionLines(argv []string) []byte {
	var b bytes.Buffer
	for i, word := range argv {
		switch {
		case i == 0:
		case len(word) > 1 && word[0] == '-' && (word[1] < '0' || word[1] > '9'), strings.Contains(word, "="):
			b.WriteByte('\n')
		default:
			b.WriteByte(' ')
		}
		b.WriteString(commandline.QuoteWord(word))
	}
	b.WriteByte('\n')
	return b.Bytes()
}
