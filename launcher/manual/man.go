package manual

import (
	"fmt"
	"io"
	"strings"

	"github.com/cpuguy83/go-md2man/v2/md2man"
	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/lazy"
)

// The description of gpurun on its manual page.
const manDescription = `gpurun runs a PyTorch or DeepSpeed training job in place of torchrun, and when the job runs out of
memory, changes its settings to a plan that fits and runs it again. It works with unmodified scripts, never writes to
your files, and never changes the global batch or the learning rate.`

// manFiles are the files that gpurun reads and writes by default.
var manFiles = []commandline.HelpEntry{
	{Names: []string{"~/.config/gpurun/config.toml"},
		About: "defaults for all your jobs: the tables of a train.toml that gpurun help config names"},
	{Names: []string{"/etc/gpurun/config.toml"},
		About: "the same for all users of this machine, and the keys that they may not loosen"},
	{Names: []string{".gpurun/JOB/RUN/"}, About: "a run: journal.jsonl, verdict.json, report.html, and the ranks' output"},
	{Names: []string{"~/.local/state/gpurun/"}, About: "what fitted, remembered from run to run"},
}

// manVariables are the variables that gpurun itself reads.
var manVariables = []commandline.HelpEntry{
	{Names: []string{"GPURUN"}, About: "off: the command that follows gpurun is executed unchanged"},
	{Names: []string{"PYTHON_EXEC"}, About: "the interpreter of the ranks"},
	{Names: []string{"PET_NPROC_PER_NODE", "PET_…"}, About: "torchrun's flags, as torchrun counts them"},
}

// A manSection is a section of a manual page: terms with their descriptions, headings, and texts between them.
type manSection struct {
	title   string
	entries []commandline.HelpEntry
}

// WriteMan writes gpurun's own manual page, gpurun(1).
func WriteMan(w io.Writer, app *cli.App) error {
	var verbs []commandline.HelpEntry
	var pages []string
	for _, c := range app.Commands {
		verbs = append(verbs, commandline.HelpEntry{Names: []string{"gpurun " + c.Name}, About: c.Usage})
		pages = append(pages, "gpurun-"+c.Name+"(1)")
	}
	options := []commandline.HelpEntry{{About: "Those of a run; gpurun help VERB has a verb's."}}
	options = append(options, commandline.HelpFor("run")...)
	return writePage(w, "gpurun", app.Usage, app.UsageText, manDescription, []manSection{
		{"VERBS", verbs}, {"OPTIONS", options}, {"EXIT STATUS", exitCodes("run")},
		{"FILES", manFiles}, {"ENVIRONMENT", manVariables}, seeAlso(pages...),
	})
}

// WriteManOf writes the manual page of a verb, gpurun-VERB(1).
func WriteManOf(w io.Writer, c *cli.Command) error {
	var commands []commandline.HelpEntry
	for _, sub := range c.Subcommands {
		commands = append(commands, commandline.HelpEntry{Names: []string{sub.Name}, About: sub.Usage})
	}
	return writePage(w, "gpurun-"+c.Name, c.Usage, c.UsageText, c.Description, []manSection{
		{"COMMANDS", commands}, {"OPTIONS", optionsOf(c)}, {"EXIT STATUS", exitCodes(c.Name)}, seeAlso("gpurun(1)"),
	})
}

func seeAlso(pages ...string) manSection {
	return manSection{"SEE ALSO", []commandline.HelpEntry{{Names: pages}}}
}

// writePage writes a page as Markdown, of which md2man makes troff. It has no date: the same source gives the same
// page.
func writePage(w io.Writer, name, usage, synopsis, description string, sections []manSection) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%% %s 1 \"\" gpurun gpurun\n\n# NAME\n\n%s - %s\n\n# SYNOPSIS\n\n%s\n\n",
		strings.ToUpper(name), name, markdown(usage), fenced(synopsis))
	switch {
	case strings.Contains(description, "\n "): // it has a table or an example
		fmt.Fprintf(&b, "# DESCRIPTION\n\n%s\n\n", fenced(description))
	case description != "":
		fmt.Fprintf(&b, "# DESCRIPTION\n\n%s\n\n", markdown(description))
	}
	for _, s := range sections {
		if s.entries != nil {
			fmt.Fprintf(&b, "# %s\n\n", s.title)
		}
		for _, e := range s.entries {
			about := markdown(strings.ReplaceAll(e.About, "\n", " "))
			switch {
			case e.Names != nil && about == "":
				fmt.Fprintf(&b, "%s\n", term(e))
			case e.Names != nil:
				fmt.Fprintf(&b, "%s\n: %s\n\n", term(e), about)
			case strings.HasSuffix(about, ":"):
				fmt.Fprintf(&b, "### %s\n\n", upperFirst(strings.TrimSuffix(about, ":")))
			default:
				fmt.Fprintf(&b, "%s\n\n", about)
			}
		}
	}
	_, err := w.Write(md2man.Render([]byte(b.String())))
	return err
}

// term returns the names of an entry, and its placeholder.
func term(e commandline.HelpEntry) string {
	var names []string
	for _, name := range e.Names {
		names = append(names, "**"+markdown(name)+"**")
	}
	text := strings.Join(names, ", ")
	if e.Value != "" {
		text += " *" + markdown(e.Value) + "*"
	}
	return text
}

var exitCode = lazy.Regexp(`(?m)^ *(\d+) +(.*)$`)

// exitCodes returns the exit codes of a verb.
func exitCodes(name string) (all []commandline.HelpEntry) {
	for _, m := range exitCode().FindAllStringSubmatch(ExitStatus(name), -1) {
		all = append(all, commandline.HelpEntry{Names: m[1:2], About: m[2]})
	}
	return all
}

// fenced returns text that keeps its lines.
func fenced(text string) string { return "```\n" + text + "\n```" }

var special = lazy.Regexp("[\\\\`*_{}\\[\\]#+|&<>~-]")

// markdown returns text in which nothing has a meaning in Markdown.
func markdown(text string) string { return special().ReplaceAllString(text, `\$0`) }
