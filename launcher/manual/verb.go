// This file is common to all verbs of the command line: which word is the verb and
// where its flags may appear, its help, and the errors of a wrong command line.

package manual

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

// Prepare lets gpurun say what is wrong with the flags of an app's verbs, and show their
// help.
func Prepare(app *cli.App) {
	app.OnUsageError, app.HideHelpCommand = onUsageError, true
	app.CustomAppHelpTemplate = cli.AppHelpTemplate + appHelp
	for _, c := range app.Commands {
		c.OnUsageError, c.HideHelpCommand = onUsageError, true
		for _, sub := range c.Subcommands {
			sub.OnUsageError, sub.HideHelpCommand = onUsageError, true
		}
	}
}

// Topics are what help knows besides verbs.
var Topics = []string{"config", "schema", "man"}

// IsTopic reports whether a word names one of them.
func IsTopic(word string) bool { return slices.Contains(Topics, word) }

// Arrange puts the verb first, and a verb's flags before its arguments: flags
// may appear anywhere. A command line without a verb is one of run.
func Arrange(app *cli.App, args []string) []string {
	for i, word := range args[min(1, len(args)):] {
		if c := app.Command(word); c != nil {
			rest := slices.Concat(args[1:i+1], args[i+2:])
			if !c.SkipFlagParsing && wantsHelp(c, rest) {
				return slices.Concat([]string{args[0], "help", c.Name}, rest)
			}
			return slices.Concat([]string{args[0], word}, flagsFirst(c, rest))
		}
		if word != "--json" && word != "--quiet" {
			break
		}
	}
	if len(args) < 2 || args[1] == "-h" || args[1] == "--help" {
		return []string{"gpurun", "help"}
	}
	if args[1] == "--version" {
		return []string{"gpurun", "version"}
	}
	return slices.Concat([]string{args[0], "run"}, args[1:])
}

// wantsHelp reports whether the words of a verb that urfave/cli parses ask for its
// help. A subcommand that reads a job knows itself what is a flag of the script.
func wantsHelp(c *cli.Command, words []string) bool {
	for _, w := range words {
		switch {
		case w == "--" || c.Command(w) != nil:
			return false
		case asksHelp(w):
			return true
		}
	}
	return false
}

// flagsFirst moves the flags of a verb, with their values, before its arguments.
// Those of torchrun stay where they are: there, the script ends them.
func flagsFirst(c *cli.Command, words []string) []string {
	if c.SkipFlagParsing || slices.ContainsFunc(c.Subcommands,
		func(sub *cli.Command) bool { return slices.Contains(words, sub.Name) }) {
		return words
	}
	var flags, rest []string
	for i := 0; i < len(words); i++ {
		w := words[i]
		switch {
		case w == "--":
			return slices.Concat(flags, words[i:i+1], rest, words[i+1:])
		case len(w) < 2 || w[0] != '-':
			rest = append(rest, w)
			continue
		}
		flags = append(flags, w)
		if i+1 < len(words) && wantsValue(c, w) {
			i++
			flags = append(flags, words[i])
		}
	}
	return slices.Concat(flags, rest)
}

// wantsValue reports whether the next word is a flag's value.
func wantsValue(c *cli.Command, word string) bool {
	for _, f := range c.Flags {
		if _, truth := f.(*cli.BoolFlag); !truth && slices.Contains(f.Names(), strings.TrimLeft(word, "-")) {
			return true
		}
	}
	return false
}

// AsksJSON reports whether a command line asks for JSON, also one that is wrong: then
// its error is JSON, too. The --json of a training script does not count.
func AsksJSON(app *cli.App, args []string) bool {
	words := Arrange(app, args)
	c := app.Command(words[1])
	words = words[2:]
	for _, sub := range c.Subcommands {
		if at := slices.Index(words, sub.Name); at >= 0 && sub.SkipFlagParsing {
			return slices.Contains(words[:at], "--json") || commandline.AsksJSON(sub.Name, words[at+1:])
		}
	}
	if c.SkipFlagParsing {
		return commandline.AsksJSON(c.Name, words)
	}
	if at := slices.Index(words, "--"); at >= 0 {
		words = words[:at]
	}
	return slices.Contains(words, "--json") || slices.Contains(words, "-json")
}

// ShowHelp is what the verb help does: it shows the help of gpurun, or of the verb that its
// arguments name.
func ShowHelp(c *cli.Context) error {
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
		section("OPTIONS", commandline.HelpText(c.Name))
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
