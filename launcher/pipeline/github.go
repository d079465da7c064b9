package pipeline

import (
	"errors"
	"fmt"
	"html"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/launcher/private"
)

// github annotates gpurun's step, and adds a section to the summary of its job.
type github struct {
	stdout    io.Writer // nil: no annotations
	summary   string    // a file, empty for none
	workspace string    // the checked-out repository
	workdir   string
}

// mostWarnings is the largest number of warnings for a step; GitHub drops further ones.
const mostWarnings = 9

// annotate shows which attempts were rescued, and how the run ended.
func (g *github) annotate(c *course, run outcome) {
	if g.stdout == nil {
		return
	}
	fmt.Fprintln(g.stdout) // the job may have ended within a line
	warned := 0
	cases, _ := c.cases()
	for _, o := range cases {
		if o.fate == skipped && warned < mostWarnings {
			g.say("warning", c, o)
			warned++
		}
	}
	level := "error"
	if run.fate == passed {
		level = "notice"
	}
	g.say(level, c, run)
}

// say writes one annotation.
func (g *github) say(level string, c *course, o outcome) {
	where := ""
	if file, line := g.place(o.traceback); file != "" {
		where = fmt.Sprintf(",file=%s,line=%s", escapeProperty.Replace(file), line)
	}
	title := fmt.Sprintf("gpurun: %s, %s", c.mask.Line(c.job, longLine), o.name)
	fmt.Fprintf(g.stdout, "::%s title=%s%s::%s\n", level, escapeProperty.Replace(title), where, escapeData.Replace(o.message))
}

// escapeData and escapeProperty escape text for the runner: nothing in it ends the line, or the property.
var (
	escapeData     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	escapeProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

// frame matches a line of a traceback that names a place in a file.
var frame = lazy.Regexp(`^\s*File "([^"]+)", line (\d{1,9})\b`)

// place returns the innermost place of a traceback in the repository, empty for none.
func (g *github) place(traceback []string) (file, line string) {
	if g.workspace == "" {
		return "", ""
	}
	for _, text := range slices.Backward(traceback) {
		m := frame().FindStringSubmatch(text)
		if m == nil || strings.Contains(m[1], "site-packages") {
			continue
		}
		path := m[1]
		if !filepath.IsAbs(path) {
			path = filepath.Join(g.workdir, path)
		}
		if below, err := filepath.Rel(g.workspace, path); err == nil && filepath.IsLocal(below) {
			return below, m[2]
		}
	}
	return "", ""
}

// The bounds of a summary: GitHub's, in bytes, and those of its table.
const (
	mostSummary = 1 << 20
	mostRows    = 50
	longCell    = 400
)

// summarize adds a section to the summary of GitHub's job.
func (g *github) summarize(text string) (err error) {
	if g.summary == "" {
		return nil
	}
	f, err := private.OpenFile(g.summary, os.O_WRONLY|os.O_APPEND|os.O_CREATE)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if info, err := f.Stat(); err != nil || info.Size()+int64(len(text)) > mostSummary {
		return errors.Join(err, errors.New("it has no room for more: GitHub takes 1 MiB"))
	}
	_, err = f.WriteString(text)
	return err
}

// markdown returns the section: the run's outcome, a table of its attempts, the last traceback.
func markdown(c *course, run outcome) string {
	var b strings.Builder
	end := run.kind
	if v := c.state.Verdict; v != nil && run.kind != "unfinished" {
		end = string(v.Outcome)
	}
	cases, _ := c.cases()
	fmt.Fprintf(&b, "\n### gpurun: %s: %s\n\n", plainText(c.mask.Line(c.job, longCell)), plainText(end))
	if run.fate != passed {
		fmt.Fprintf(&b, "%s\n\n", plainText(run.message))
	}
	if len(cases) > 0 {
		b.WriteString("| attempt | took | cause | decision |\n|---|---|---|---|\n")
	}
	for _, o := range cases[max(0, len(cases)-mostRows):] {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", strings.TrimPrefix(o.name, "attempt "), o.took.Round(100*time.Millisecond), plainText(o.kind), plainText(c.mask.Line(o.message, longCell)))
	}
	if run.fate != passed && len(run.traceback) > 0 {
		fmt.Fprintf(&b, "\n<details><summary>traceback</summary>\n<pre>%s</pre>\n</details>\n", html.EscapeString(strings.Join(run.traceback, "\n")))
	}
	if c.run() != "" {
		fmt.Fprintf(&b, "\nrun: %s\n", plainText(c.mask.Line(c.run(), longCell)))
	}
	return b.String()
}

// plainText escapes text so that Markdown shows it unchanged.
func plainText(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r < unicode.MaxASCII && (unicode.IsPunct(r) || unicode.IsSymbol(r)) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Words wraps w for gpurun's messages: it escapes what the system that runs gpurun would
// interpret.
func Words(w io.Writer, getenv func(string) string) io.Writer {
	if onGitHub(getenv) {
		return defused{w}
	}
	return w
}

func onGitHub(getenv func(string) string) bool { return getenv("GITHUB_ACTIONS") == "true" }

// defused escapes, as a writer, the commands of GitHub's runner: "::add-mask::…" at the
// start of a line, and "##[add-mask]…" anywhere in one. A line of a job's traceback can look
// like that.
type defused struct{ w io.Writer }

var (
	command    = lazy.Regexp(`(?m)((?:^|\r)[\t\v\f\p{Z}]*)::`)
	oldCommand = lazy.Regexp(`##\[`)
)

// Write writes p, whose lines are whole.
func (d defused) Write(p []byte) (int, error) {
	safe := oldCommand().ReplaceAll(command().ReplaceAll(p, []byte(`$1\::`)), []byte(`##\[`))
	if _, err := d.w.Write(safe); err != nil {
		return 0, err
	}
	return len(p), nil
}
