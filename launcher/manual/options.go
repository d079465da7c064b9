package manual

import (
	"regexp"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/commandline"
)

// An option is one of a verb's, as its help has it.
type option struct {
	names []string // with their dashes
	value string   // what stands for its value; empty where it has none
	about string
}

// A said is one part of the help of the options: an option, or text between them.
type said struct {
	option
	text string // of a headline, which ends with a colon, or of a paragraph
}

// entry is a line of help that begins an option: its names, its value, what it does.
var entry = regexp.MustCompile(`^ *(-{1,2}[\w-]+(?:, -{1,2}[\w-]+)*)(?: ([A-Z][^ ]*))? {2,}(\S.*)$`)

// optionsOf takes the help of a verb's options apart.
func optionsOf(c *cli.Command) []said {
	if c.SkipFlagParsing && c.Name != "help" {
		return parse(commandline.OptionsHelp(c.Name))
	}
	var all []said
	for _, f := range c.Flags {
		if !slices.Contains(f.Names(), "help") {
			all = append(all, said{option: flagOf(f)})
		}
	}
	return append(all, said{option: option{names: []string{"--help", "-h"}, about: "show this"}})
}

// parse reads the help of options: lines that begin one, lines that go on with it, which
// are indented deeper, and other lines.
func parse(help string) []said {
	var all []said
	for line := range strings.SplitSeq(help, "\n") {
		m := entry.FindStringSubmatch(line)
		last := len(all) - 1
		switch text := strings.TrimSpace(line); {
		case m != nil:
			all = append(all, said{option: option{names: strings.Split(m[1], ", "), value: m[2], about: m[3]}})
		case text == "":
			all = append(all, said{})
		case last >= 0 && all[last].names != nil && strings.HasPrefix(line, "      "):
			all[last].about += " " + text
		case last >= 0 && all[last].text != "" && !strings.HasSuffix(all[last].text, ":"):
			all[last].text += " " + text
		default:
			all = append(all, said{text: text})
		}
	}
	return slices.DeleteFunc(all, func(s said) bool { return s.names == nil && s.text == "" })
}

// flagOf is a flag that urfave/cli parses.
func flagOf(f cli.Flag) option {
	var o option
	for _, name := range f.Names() {
		dashes := "--"
		if len(name) == 1 {
			dashes = "-"
		}
		o.names = append(o.names, dashes+name)
	}
	documented, ok := f.(cli.DocGenerationFlag)
	if !ok {
		return o
	}
	o.about = documented.GetUsage()
	if documented.TakesValue() {
		o.value = "VALUE"
		if _, rest, quoted := strings.Cut(o.about, "`"); quoted {
			o.value, _, _ = strings.Cut(rest, "`")
		}
		if text := documented.GetDefaultText(); text != "" && text != `""` {
			o.about += " (default: " + strings.Trim(text, `"`) + ")"
		}
	}
	o.about = strings.ReplaceAll(o.about, "`", "")
	return o
}
