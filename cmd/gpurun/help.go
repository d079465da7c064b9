package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/job"
)

// appHelp follows the list of verbs: enough to start a job with.
const appHelp = `
EXAMPLES:
   gpurun torchrun --nproc-per-node 8 train.py          one word in front of the line that you type today
   gpurun --nproc-per-node 8 train.py --batch-size 64   in place of torchrun; a known framework needs no more
   gpurun plan train.toml                               what gpurun could change, and what not, and why; starts nothing
   gpurun diagnose slurm-1234.out                       why a job died that ran without gpurun

   gpurun init train.py                                 a train.toml with what a script's source says of its settings

   What it does not say stands in train.toml:

     [job]
     script = "train.py"
     args   = ["--batch-size", "64"]
     [knobs]
     micro_batch_size            = { arg = "--batch-size" }
     gradient_accumulation_steps = { arg = "--accum", default = 1 }

   "gpurun help run" lists the flags of a run.

EXIT STATUS:
` + runStatus + `
`

// runStatus are the exit codes of a run.
const runStatus = `   0    trained
   1    the job failed for a reason of its own
   2    usage, configuration or environment: nothing was started
   12   memory: every allowed rung was tried or is impossible, or a bound was reached
   70   a bug in gpurun
   74   the run directory cannot be written
   75   try again later
   130  stopped by SIGINT; 143 by SIGTERM`

// status are the exit codes of the verbs that start nothing.
func status(done string) string {
	return "   0    " + done + `
   2    usage, configuration or environment
   70   a bug in gpurun`
}

// helpCommand shows the help of gpurun or of one verb.
func helpCommand() *cli.Command {
	return &cli.Command{
		Name:            "help",
		Aliases:         []string{"h"},
		Usage:           "show this, or the help of a verb",
		UsageText:       "gpurun help [VERB]\ngpurun VERB --help",
		SkipFlagParsing: true,
		Action: func(c *cli.Context) error {
			verb := c.App.Command(c.Args().First())
			if asksHelp(c.Args().First()) {
				verb = c.Command
			}
			if verb == nil {
				return cli.ShowAppHelp(c)
			}
			path := "gpurun " + verb.Name
			for _, sub := range verb.Subcommands {
				if sub.Name == c.Args().Get(1) {
					verb, path = sub, path+" "+sub.Name
				}
			}
			return writeHelp(c.App.Writer, verb, path)
		},
	}
}

// orHelp shows a verb's help where its command line asked for it.
func orHelp(c *cli.Context, err error) error {
	if errors.Is(err, job.ErrHelp) {
		return writeHelp(c.App.Writer, c.Command, c.Command.HelpName)
	}
	return err
}

// exitStatus are the exit codes of each verb.
var exitStatus = map[string]string{
	"run":      runStatus,
	"plan":     status("the plan is shown"),
	"init":     status("the train.toml is written, or shown"),
	"estimate": status("the estimate is shown, whatever fits"),
	"diagnose": status("everything was read, whatever the diagnosis"),
	"explain":  status("the journal was read"),
	"recipes":  status("the recipes are shown"),
	"detect":   status("the recipe is shown, or that there is none"),
	"version":  status("the version is shown"),
	"help":     status("the help is shown"),
}

// writeHelp writes a verb's help: the one text of "help VERB" and "VERB --help".
func writeHelp(out io.Writer, c *cli.Command, path string) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	section := func(title, text string) {
		fmt.Fprintf(w, "%s:\n", title)
		for line := range strings.SplitSeq(text, "\n") {
			fmt.Fprintln(w, strings.TrimRight("   "+line, " "))
		}
		fmt.Fprintln(w)
	}
	section("NAME", path+" - "+c.Usage)
	section("USAGE", c.UsageText)
	if c.Description != "" {
		section("DESCRIPTION", c.Description)
	}
	if len(c.Subcommands) > 0 {
		fmt.Fprintf(w, "COMMANDS:\n")
		for _, sub := range c.Subcommands {
			fmt.Fprintf(w, "   %s\t%s\n", sub.Name, sub.Usage)
		}
		fmt.Fprintln(w)
	}
	if c.SkipFlagParsing && c.Name != "help" {
		section("OPTIONS", commandline.OptionsHelp(c.Name))
	} else {
		fmt.Fprintf(w, "OPTIONS:\n")
		for _, f := range c.Flags {
			if !slices.Contains(f.Names(), "help") { // which is added once a verb has run
				fmt.Fprintf(w, "   %s\n", f)
			}
		}
		fmt.Fprintf(w, "   --help, -h\tshow this\n\n")
	}
	fmt.Fprintf(w, "EXIT STATUS:\n%s\n", exitStatus[c.Name])
	return w.Flush()
}

// verbs are the words that may stand in the place of a job.
func verbs() []string {
	var names []string
	for _, c := range newApp(streams{}).Commands {
		names = append(names, c.Names()...)
	}
	return names
}

// misnamed refuses a verb that is none: what would otherwise be looked for as a
// script, and the argument of help.
func misnamed(args []string) error {
	if len(args) < 2 {
		return nil
	}
	args = slices.DeleteFunc(slices.Clone(args), func(w string) bool { return w == "--json" || w == "--quiet" })
	if len(args) < 2 {
		return nil
	}
	word, all := args[1], verbs()
	if word == "help" && len(args) > 2 && !asksHelp(args[2]) {
		if app := newApp(streams{}); app.Command(args[2]) == nil {
			return noVerb(args[2], job.Nearest(args[2], all))
		}
	}
	if strings.HasPrefix(word, "-") || strings.ContainsAny(word, "./") {
		return nil
	}
	if newApp(streams{}).Command(word) != nil || commandline.Known.Starts(word) {
		return nil
	}
	if slices.Contains(commandline.Verbs, word) {
		return errext.Errorf("gpurun help lists the verbs; a program of that name goes behind --: gpurun -- "+word+" …", "%q is a verb that this version of gpurun does not have yet", word)
	}
	if _, err := os.Stat(word); err == nil {
		return nil
	}
	if _, err := exec.LookPath(word); err == nil {
		return nil
	}
	if meant := job.Nearest(word, all); meant != "" {
		return noVerb(word, meant)
	}
	return nil
}

func noVerb(word, meant string) error {
	hint := "gpurun help lists the verbs"
	if meant != "" {
		hint = "did you mean gpurun " + meant + "? gpurun help lists the verbs"
	}
	return errext.Errorf(hint, "%q is neither a verb nor an existing script", word)
}

func asksHelp(word string) bool { return word == "--help" || word == "-h" }

// onUsageError says a wrong flag in gpurun's words.
func onUsageError(c *cli.Context, err error, _ bool) error {
	verb := c.Command.FullName()
	hint := "gpurun help " + verb + " lists its flags"
	if name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: "); unknown {
		name = strings.TrimLeft(name, "-")
		var known []string
		for _, f := range c.Command.Flags {
			known = append(known, f.Names()...)
		}
		if meant := job.Nearest(name, known); meant != "" {
			hint = "did you mean --" + meant + "?"
		}
		return errext.Errorf(hint, "unknown flag --%s", name)
	}
	if rest, ok := strings.CutPrefix(err.Error(), "flag needs an argument: "); ok {
		return errext.Errorf(hint, "--%s needs a value", strings.TrimLeft(rest, "-"))
	}
	if rest, ok := strings.CutPrefix(err.Error(), "invalid value "); ok {
		value, flag, _ := strings.Cut(strings.TrimSuffix(rest, ": parse error"), " for flag ")
		return errext.Errorf(hint, "invalid value %[2]s for --%[1]s", strings.TrimLeft(flag, "-"), value)
	}
	return errext.WithHint(err, hint)
}

// atMost refuses arguments that a verb would not look at.
func atMost(c *cli.Context, n int) error {
	if c.NArg() > n {
		return errext.Errorf("gpurun help "+c.Command.FullName()+" shows its usage", "unexpected argument %[2]q for gpurun %[1]s", c.Command.FullName(), c.Args().Get(n))
	}
	return nil
}
