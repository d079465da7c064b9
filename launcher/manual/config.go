package manual

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/job"
)

// WriteConfig writes all keys of a train.toml as such a file: each with its default, or without one, in a
// comment with an example. The tables of a site's configuration are comments.
func WriteConfig(w io.Writer) error {
	var b strings.Builder
	for i, s := range slices.Concat(job.Sections, job.SiteSections) {
		lead := ""
		if i > 0 {
			b.WriteString("\n")
			if s.OneOf != nil || i >= len(job.Sections) {
				lead = "# " // the table needs one of these keys, or is not for this file
			}
		}
		fmt.Fprintf(&b, "%s[%s]  # %s\n", lead, s.Name, s.About)
		keys, values := 0, 0
		for _, k := range s.Keys {
			keys, values = max(keys, len(setting(k, lead))), max(values, utf8.RuneCountInString(spelt(k)))
		}
		for _, k := range s.Keys {
			value := spelt(k)
			fmt.Fprintf(&b, "%-*s = %s%s  # %s\n", keys, setting(k, lead), value,
				strings.Repeat(" ", min(values, 22)-min(utf8.RuneCountInString(value), values, 22)), about(k))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeSettings writes, as comments, what the configurations on this machine set and lock.
func writeSettings(w io.Writer, env commandline.Environ) error {
	j, err := job.Configured(env)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, text := range j.Warnings {
		fmt.Fprintf(&b, "# warning: %s\n", text)
	}
	for _, s := range j.Settings() {
		fmt.Fprintf(&b, "#   %s\n", s)
	}
	if b.Len() > 0 {
		_, err = fmt.Fprintf(w, "\n# Set for all jobs on this machine:\n%s", b.String())
	}
	return errors.Join(err, j.Refused())
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

<!-- Written by "make docs" from launcher/job/keys.go. -->

This page is the list; [train-toml.md](train-toml.md) explains it, and ` + "`gpurun help config`" + ` prints it. An editor that knows
TOML schemas (Taplo, Even Better TOML) completes and checks a file whose first line names the schema, which
` + "`gpurun help schema > train.schema.json`" + ` writes:

` + "```toml\n#:schema ./train.schema.json\n```\n\n"

// WriteConfigPage writes the keys of a train.toml as a page of Markdown.
func WriteConfigPage(w io.Writer) error {
	var b strings.Builder
	b.WriteString(pageHead)
	for i, s := range slices.Concat(job.Sections, job.SiteSections) {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "## %s\n\n%s.", s.Name, upperFirst(cell(s.About)))
		switch {
		case i >= len(job.Sections):
			b.WriteString(" Only the [configuration of a site](administration.md) may have this table.")
		case s.Config && slices.ContainsFunc(s.Keys, func(k job.FileKey) bool { return k.OneJob }):
			b.WriteString(" Your [own configuration](commands.md) may have this table, too, without the keys that are about one job: " + strings.Join(oneJob(s), ", ") + ".")
		case s.Config:
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

// oneJob returns the keys of a table that no configuration may set.
func oneJob(s job.Section) (names []string) {
	for _, k := range s.Keys {
		if k.OneJob {
			names = append(names, "`"+k.Name+"`")
		}
	}
	return names
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
