package verb

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/job"
)

// Show is what the verb help does: it shows the help of gpurun, or of the verb that its
// arguments name.
func Show(c *cli.Context) error {
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
}

// OrHelp shows a verb's help where its command line asked for it.
func OrHelp(c *cli.Context, err error) error {
	if errors.Is(err, job.ErrHelp) {
		return writeHelp(c.App.Writer, c.Command, c.Command.HelpName)
	}
	return err
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

func asksHelp(word string) bool { return word == "--help" || word == "-h" }
