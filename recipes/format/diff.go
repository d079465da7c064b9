package format

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/strategy"
)

// diff shows the change as a person would read it: the files, then the command
// with one option a line, then the variables that change.
func (d *Draft) diff(change Change) string {
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
	b.Write(Unified("calls in the process", callLines(change.Calls, false), "calls in the process", callLines(change.Calls, true)))
	return b.String()
}

// callLines are the calls that the process makes, as they would be written; next: with
// their new arguments.
func callLines(calls []strategy.Call, next bool) []byte {
	var b bytes.Buffer
	for _, c := range calls {
		value := "…"
		switch {
		case next:
			value = Literal(c.To)
		case c.From != nil:
			value = Literal(c.From)
		}
		fmt.Fprintf(&b, "%s(%s=%s)\n", c.Name, c.Keyword, value)
	}
	return b.Bytes()
}

// Literal is a number, a word or a truth value as Python writes it.
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

// Unified is a diff without the line that names the tool. As in git's, a name that
// is no single line of text is quoted.
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

// optionLines prints a command with one option, and its values, a line.
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
