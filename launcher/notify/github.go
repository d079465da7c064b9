package notify

import (
	"fmt"
	"github.com/gpurun/gpurun/launcher/lazy"
	"io"
	"path/filepath"
	"slices"
	"strings"
)

// github annotates gpurun's step in GitHub Actions.
type github struct {
	stdout    io.Writer
	workspace string // the checked-out repository
	workdir   string
}

// mostWarnings is the largest number of warnings for a step; GitHub drops further ones.
const mostWarnings = 9

// annotate shows which attempts were rescued, and how the run ended.
func (g *github) annotate(c *history, run outcome) {
	fmt.Fprintln(g.stdout) // the job may have ended within a line
	warned := 0
	cases, _ := c.cases()
	for _, o := range cases {
		if o.status == skipped && warned < mostWarnings {
			g.say("warning", c, o)
			warned++
		}
	}
	level := "error"
	if run.status == passed {
		level = "notice"
	}
	g.say(level, c, run)
}

// say writes one annotation.
func (g *github) say(level string, c *history, o outcome) {
	where := ""
	if file, line := g.place(o.traceback); file != "" {
		where = fmt.Sprintf(",file=%s,line=%s", escapeProperty.Replace(file), line)
	}
	title := escapeProperty.Replace(fmt.Sprintf("gpurun: %s, %s", c.mask.Line(c.job, longLine), o.name))
	message := escapeData.Replace(o.message)
	fmt.Fprintf(g.stdout, "::%s title=%s%s::%s\n", level, title, where, message)
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

// PipelineMessages wraps w for gpurun's messages: it escapes what the system that runs gpurun would
// interpret.
func PipelineMessages(w io.Writer, getenv func(string) string) io.Writer {
	if onGitHub(getenv) {
		return commandEscaper{w}
	}
	return w
}

func onGitHub(getenv func(string) string) bool { return getenv("GITHUB_ACTIONS") == "true" }

// A commandEscaper escapes the commands of GitHub's runner: "::add-mask::…" at the
// start of a line, and "##[add-mask]…" anywhere in one. A line of a job's traceback can look
// like that.
type commandEscaper struct{ w io.Writer }

var (
	command    = lazy.Regexp(`(?m)((?:^|\r)[\t\v\f\p{Z}]*)::`)
	oldCommand = lazy.Regexp(`##\[`)
)

// Write writes p, whose lines are whole.
func (c commandEscaper) Write(p []byte) (int, error) {
	safe := oldCommand().ReplaceAll(command().ReplaceAll(p, []byte(`$1\::`)), []byte(`##\[`))
	if _, err := c.w.Write(safe); err != nil {
		return 0, err
	}
	return len(p), nil
}
