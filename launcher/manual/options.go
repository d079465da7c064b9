package manual

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/commandline"
)

// readsItself reports whether a verb parses its command line itself, since that contains a job's.
func readsItself(c *cli.Command) bool { return c.SkipFlagParsing && c.Name != "help" }

// optionsOf returns the help of a verb's options.
func optionsOf(c *cli.Command) []commandline.HelpEntry {
	if readsItself(c) {
		return commandline.HelpFor(c.Name)
	}
	var all []commandline.HelpEntry
	for _, f := range c.Flags {
		if !slices.Contains(f.Names(), "help") {
			all = append(all, flagOf(f))
		}
	}
	return append(all, commandline.HelpEntry{Names: []string{"--help", "-h"}, About: "show this"})
}

// flagOf returns the help of a flag that urfave/cli parses.
func flagOf(f cli.Flag) commandline.HelpEntry {
	var o commandline.HelpEntry
	for _, name := range f.Names() {
		dashes := "--"
		if len(name) == 1 {
			dashes = "-"
		}
		o.Names = append(o.Names, dashes+name)
	}
	documented, ok := f.(cli.DocGenerationFlag)
	if !ok {
		return o
	}
	o.About = documented.GetUsage()
	if documented.TakesValue() {
		o.Value = "VALUE"
		if _, rest, quoted := strings.Cut(o.About, "`"); quoted {
			o.Value, _, _ = strings.Cut(rest, "`")
		}
		if text := documented.GetDefaultText(); text != "" && text != `""` {
			o.About += " (default: " + strings.Trim(text, `"`) + ")"
		}
	}
	o.About = strings.ReplaceAll(o.About, "`", "")
	return o
}
