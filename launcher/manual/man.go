package manual

import (
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/launcher/verb"
)

// The description of gpurun on its manual page.
const manDescription = `gpurun runs a PyTorch or DeepSpeed training job in place of torchrun, and when the job runs out of memory, changes its
settings to a plan that fits and runs it again. It works with unmodified scripts, never writes to your files, and never changes
the global batch or the learning rate.`

// manFiles are the files that gpurun reads and writes by default.
var manFiles = []commandline.HelpEntry{
	{Names: []string{"~/.config/gpurun/config.toml"}, About: "defaults for all your jobs: the tables of a train.toml that gpurun help config names"},
	{Names: []string{"/etc/gpurun/config.toml"}, About: "the same for all users of this machine, and the keys that they may not loosen"},
	{Names: []string{".gpurun/JOB/RUN/"}, About: "a run: journal.jsonl, verdict.json, report.html, and the ranks' output"},
	{Names: []string{"~/.local/state/gpurun/"}, About: "what fitted, remembered from run to run"},
}

// manVariables are the variables that gpurun itself reads.
var manVariables = []commandline.HelpEntry{
	{Names: []string{"GPURUN"}, About: "off: the command that follows gpurun is executed unchanged"},
	{Names: []string{"PYTHON_EXEC"}, About: "the interpreter of the ranks"},
	{Names: []string{"PET_NPROC_PER_NODE, PET_…"}, About: "torchrun's flags, as torchrun counts them"},
}

// WriteMan writes gpurun's own manual page, gpurun(1).
func WriteMan(w io.Writer, app *cli.App) error {
	p := begun("gpurun", app.Usage, app.UsageText)
	p.head("DESCRIPTION")
	p.text(manDescription)
	p.head("VERBS")
	var pages []string
	for _, c := range app.Commands {
		p.entry(`\fBgpurun `+bold(c.Name)+`\fR`, c.Usage)
		pages = append(pages, c.Name)
	}
	p.head("OPTIONS")
	p.text("Those of a run; gpurun help VERB has a verb's.")
	p.options(commandline.HelpFor("run"))
	p.status("run")
	p.head("FILES")
	p.list(manFiles)
	p.head("ENVIRONMENT")
	p.list(manVariables)
	p.also(pages)
	return p.to(w)
}

// WriteManOf writes the manual page of a verb, gpurun-VERB(1).
func WriteManOf(w io.Writer, c *cli.Command) error {
	p := begun("gpurun-"+c.Name, c.Usage, c.UsageText)
	if c.Description != "" {
		p.head("DESCRIPTION")
		p.text(c.Description)
	}
	if len(c.Subcommands) > 0 {
		p.head("COMMANDS")
		for _, sub := range c.Subcommands {
			p.entry(bold(sub.Name), sub.Usage)
		}
	}
	p.head("OPTIONS")
	p.options(optionsOf(c))
	p.status(c.Name)
	p.also([]string{""})
	return p.to(w)
}

// A roff is a manual page being written.
type roff struct{ strings.Builder }

// begun returns a page up to its synopsis.
func begun(name, usage, synopsis string) *roff {
	p := &roff{}
	// There is no date: the same source gives the same page.
	fmt.Fprintf(p, ".TH %s 1 \"\" \"gpurun\" \"gpurun\"\n", strings.ToUpper(strings.ReplaceAll(name, "-", `\-`)))
	p.head("NAME")
	fmt.Fprintf(p, "%s \\- %s\n", escaped(name), escaped(usage))
	p.head("SYNOPSIS")
	p.table(synopsis)
	return p
}

func (p *roff) head(title string) { fmt.Fprintf(p, ".SH %s\n", title) }

// table writes lines unchanged.
func (p *roff) table(text string) { fmt.Fprintf(p, ".nf\n%s\n.fi\n", escaped(text)) }

// text writes a paragraph unchanged if it has a line of a table or an example, else filled.
func (p *roff) text(text string) {
	if strings.Contains(text, "\n ") {
		p.table(text)
		return
	}
	fmt.Fprintf(p, "%s\n", escaped(text))
}

// entry writes a term, which must be escaped already, and its description.
func (p *roff) entry(term, about string) { fmt.Fprintf(p, ".TP\n%s\n%s\n", term, escaped(about)) }

// list writes entries with all their names.
func (p *roff) list(all []commandline.HelpEntry) {
	for _, o := range all {
		p.entry(bold(o.Names[0]), o.About)
	}
}

// options writes the options and the texts between them.
func (p *roff) options(all []commandline.HelpEntry) {
	for _, o := range all {
		about := strings.ReplaceAll(o.About, "\n", " ")
		switch {
		case o.Names != nil:
			term := ""
			for i, name := range o.Names {
				if i > 0 {
					term += ", "
				}
				term += bold(name)
			}
			if o.Value != "" {
				term += ` \fI` + escaped(o.Value) + `\fR`
			}
			p.entry(term, about)
		case strings.HasSuffix(about, ":"):
			fmt.Fprintf(p, ".SS %s\n", escaped(upperFirst(strings.TrimSuffix(about, ":"))))
		default:
			fmt.Fprintf(p, ".PP\n%s\n", escaped(about))
		}
	}
}

var code = lazy.Regexp(`^ *(\d+) +(.*)$`)

// status writes the exit codes of a verb.
func (p *roff) status(name string) {
	p.head("EXIT STATUS")
	for line := range strings.SplitSeq(verb.ExitStatus(name), "\n") {
		if m := code().FindStringSubmatch(line); m != nil {
			p.entry(bold(m[1]), m[2])
		}
	}
}

// also writes references to other pages; the empty name is gpurun's page.
func (p *roff) also(names []string) {
	p.head("SEE ALSO")
	for i, name := range names {
		page, comma := "gpurun-"+name, ","
		if name == "" {
			page = "gpurun"
		}
		if i == len(names)-1 {
			comma = ""
		}
		fmt.Fprintf(p, ".BR %s (1)%s\n", escaped(page), comma)
	}
}

func (p *roff) to(w io.Writer) error {
	_, err := io.WriteString(w, p.String())
	return err
}

func bold(text string) string { return `\fB` + escaped(text) + `\fR` }

// escaped returns text with special characters escaped for troff, and characters beyond ASCII as numbers. No
// line of it is read as a request.
func escaped(text string) string {
	var b strings.Builder
	first := true
	for _, r := range text {
		switch {
		case first && (r == '.' || r == '\''):
			b.WriteString(`\&` + string(r))
		case r == '\\':
			b.WriteString(`\e`)
		case r == '-':
			b.WriteString(`\-`)
		case r == '\'':
			b.WriteString(`\(aq`)
		case r == '`':
			b.WriteString(`\(ga`)
		case r == '^':
			b.WriteString(`\(ha`)
		case r == '~':
			b.WriteString(`\(ti`)
		case r > '~':
			fmt.Fprintf(&b, `\[u%04X]`, r)
		default:
			b.WriteRune(r)
		}
		first = r == '\n'
	}
	return b.String()
}
