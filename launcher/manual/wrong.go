package manual

import (
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/job"
)

// verbs are the words that may appear in the place of a job.
func verbs(app *cli.App) []string {
	var names []string
	for _, c := range app.Commands {
		names = append(names, c.Names()...)
	}
	return names
}

// Misnamed refuses a verb that is none: what would otherwise be looked for as a
// script, and the argument of help.
func Misnamed(app *cli.App, args []string) error {
	if len(args) < 2 {
		return nil
	}
	args = slices.DeleteFunc(slices.Clone(args), func(w string) bool { return w == "--json" || w == "--quiet" })
	if len(args) < 2 {
		return nil
	}
	word, all := args[1], verbs(app)
	if word == "help" && len(args) > 2 && !asksHelp(args[2]) {
		if app.Command(args[2]) == nil && !IsTopic(args[2]) {
			return noVerb(args[2], job.Nearest(args[2], slices.Concat(all, Topics)))
		}
	}
	if strings.HasPrefix(word, "-") || strings.ContainsAny(word, "./") {
		return nil
	}
	if app.Command(word) != nil || commandline.Known.Starts(word) {
		return nil
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

// AtMost refuses arguments that a verb would not look at.
func AtMost(c *cli.Context, n int) error {
	if c.NArg() > n {
		return errext.Errorf("gpurun help "+c.Command.FullName()+" shows its usage",
			"unexpected argument %[2]q for gpurun %[1]s", c.Command.FullName(), c.Args().Get(n))
	}
	return nil
}
