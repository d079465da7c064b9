package manual

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/gpurun/gpurun/launcher/job"
)

// WriteConfig writes all keys of a train.toml as such a file: each with its default, or without one, in a
// comment with an example.
func WriteConfig(w io.Writer) error {
	var b strings.Builder
	for i, s := range job.Sections {
		lead := ""
		if i > 0 {
			b.WriteString("\n")
			if s.OneOf != nil {
				lead = "# " // the table needs one of these keys
			}
		}
		fmt.Fprintf(&b, "%s[%s]  # %s\n", lead, s.Name, s.About)
		keys, values := 0, 0
		for _, k := range s.Keys {
			keys, values = max(keys, len(setting(k, lead))), max(values, utf8.RuneCountInString(spelt(k)))
		}
		for _, k := range s.Keys {
			value := spelt(k)
			fmt.Fprintf(&b, "%-*s = %s%s  # %s\n", keys, setting(k, lead), value, strings.Repeat(" ", min(values, 22)-min(utf8.RuneCountInString(value), values, 22)), about(k))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// setting returns a key as a line of a file, as a comment if the key has no default, or if its table is a
// comment.
func setting(k job.FileKey, lead string) string {
	if k.Default == "" || lead != "" {
		return "# " + k.Name
	}
	return k.Name
}

// spelt returns a value of the key as written in a file.
func spelt(k job.FileKey) string { return cmp.Or(k.Default, k.Example) }

// about returns a key's description, with its allowed values besides the default.
func about(k job.FileKey) string {
	if others := otherWords(k); others != "" {
		return others + "; " + k.About
	}
	return k.About
}

// otherWords returns the words that a key can have besides its default.
func otherWords(k job.FileKey) string {
	if k.Form == job.ListForm {
		return "" // remedies and knobs are too many for a line
	}
	var others []string
	for _, w := range k.Words {
		if q := `"` + w + `"`; q != k.Default {
			others = append(others, q)
		}
	}
	switch {
	case k.Form == job.NumberForm && k.Words != nil && k.Most == 1:
		others = append(others, "1")
	case k.Form == job.DurationForm && k.Words != nil:
		others = append(others, "a duration")
	case k.Form == job.TruthForm && k.Words != nil:
		others = append(others, string(k.Form))
	case k.Form == job.NumberForm && k.Words != nil:
		others = append(others, "a number")
	}
	if len(others) == 0 {
		return ""
	}
	return "or " + strings.Join(others, ", ")
}

// pageHead precedes the tables of docs/config.md.
const pageHead = `# The keys of train.toml

<!-- Written by "make generate" from launcher/job/keys.go. -->

This page is the list; [train-toml.md](train-toml.md) explains it, and ` + "`gpurun help config`" + ` prints it. An editor that knows
TOML schemas (Taplo, Even Better TOML) completes and checks a file whose first line names [the schema](train.schema.json), which
` + "`gpurun help schema`" + ` prints, too:

    #:schema ./train.schema.json

`

// WriteConfigPage writes the keys of a train.toml as a page of Markdown.
func WriteConfigPage(w io.Writer) error {
	var b strings.Builder
	b.WriteString(pageHead)
	for i, s := range job.Sections {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "## %s\n\n%s.", s.Name, upperFirst(cell(s.About)))
		if s.Config {
			b.WriteString(" Your [own configuration](commands.md) may have this table, too.")
		}
		b.WriteString("\n")
		if s.Keys == nil {
			continue
		}
		b.WriteString("\n| key | value | default | what it does |\n|---|---|---|---|\n")
		for _, k := range s.Keys {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.Name, valuesOf(k), defaultOf(k), cell(k.About))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// valuesOf describes the allowed values of a key.
func valuesOf(k job.FileKey) string {
	var all []string
	for _, w := range k.Words {
		all = append(all, "`\""+w+"\"`")
	}
	words := strings.Join(all, ", ")
	form := string(k.Form)
	switch {
	case k.Form == job.NumberForm && k.Most == 1:
		form = "`1`"
	case k.Form == job.ListForm && k.Words != nil:
		return "list of " + words
	case k.Form == job.TextForm && k.Words != nil:
		return words
	}
	if k.Example != "" {
		form += ", such as `" + strings.ReplaceAll(k.Example, "|", `\|`) + "`"
	}
	if words != "" {
		return form + ", " + words
	}
	return form
}

func defaultOf(k job.FileKey) string {
	if k.Default == "" {
		return "–"
	}
	return "`" + k.Default + "`"
}

// cell returns text for a cell of a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

func upperFirst(text string) string { return strings.ToUpper(text[:1]) + text[1:] }
