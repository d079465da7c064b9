package main

import (
	"errors"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/job"
)

// appHelp follows the list of verbs: enough to start a job with.
const appHelp = `
EXAMPLES:
   gpurun --nproc-per-node 8 train.py --batch-size 64   in place of torchrun; a known framework needs no more
   gpurun plan train.toml                               what could be changed, and what not and why; starts nothing
   gpurun diagnose slurm-1234.out                       why a job died that ran without gpurun

   A script of your own says in train.toml how its settings are spelled:

     [job]
     script = "train.py"
     args   = ["--batch-size", "64"]
     [knobs]
     micro_batch_size            = { arg = "--batch-size" }
     gradient_accumulation_steps = { arg = "--accum", default = 1 }

   "gpurun help run" lists the flags of a run.

EXIT STATUS:
   0    trained
   1    the job failed for a reason of its own
   2    usage, configuration or environment: nothing was started
   12   memory: every allowed rung was tried or is impossible, or a bound was reached
   70   a bug in gpurun
   74   the run directory cannot be written
   75   try again later
   130  stopped by SIGINT; 143 by SIGTERM
`

// launchFlags are the flags of the verbs that read a job, which package job
// parses itself.
const launchFlags = `gpurun's own:
   --json                 one JSON document on stdout (of a run: events as JSON lines, the verdict last)
   --quiet                say only failures and the end
   --run-dir DIR          the run directory; one that exists goes on where it stopped
   --deadline TIME        by when the run is over, such as 4h: it stops at a checkpoint before, with code 75
   --propagate-exit-code  end with the job's own code, if that is 1-63, where it failed for a reason of its own

torchrun's, before the script (with a train.toml: its [launch] table, or job.command):
   --nproc-per-node N     ranks: a number, auto, gpu or cpu
   -m, --module           the script is a module, as in python -m
   --no-python            the script is a program
   --python PATH          the interpreter; by default the active environment's, then torchrun's, then python3
   --max-restarts N       restarts for failures that a rung does not answer
   --log-dir, -r/--redirects, -t/--tee, --local-ranks-filter, --role, --master-port, --rdzv-id, …`

// helpCommand shows the help of gpurun or of one verb.
func helpCommand() *cli.Command {
	return &cli.Command{
		Name:      "help",
		Aliases:   []string{"h"},
		Usage:     "show this, or the help of a verb",
		ArgsUsage: "[VERB]",
		Action: func(c *cli.Context) error {
			if verb := c.Args().First(); verb != "" {
				return cli.ShowCommandHelp(c, verb)
			}
			return cli.ShowAppHelp(c)
		},
	}
}

// orHelp shows a verb's help where its command line asked for it.
func orHelp(c *cli.Context, err error) error {
	if errors.Is(err, job.ErrHelp) {
		return cli.ShowSubcommandHelp(c)
	}
	return err
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
	word, all := args[1], verbs()
	if word == "help" && len(args) > 2 {
		if app := newApp(streams{}); app.Command(args[2]) == nil {
			return noVerb(args[2], job.Nearest(args[2], all))
		}
	}
	if strings.HasPrefix(word, "-") || strings.ContainsAny(word, "./") {
		return nil
	}
	if _, err := os.Stat(word); err == nil || newApp(streams{}).Command(word) != nil {
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
	return errext.Errorf(hint, "%q is neither a verb nor a script that is there", word)
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
		return errext.Errorf(hint, "--%s: %s is not what it takes", strings.TrimLeft(flag, "-"), value)
	}
	return errext.WithHint(err, hint)
}

// atMost refuses arguments that a verb would not look at.
func atMost(c *cli.Context, n int) error {
	if c.NArg() > n {
		return errext.Errorf("gpurun help "+c.Command.FullName()+" says what it takes", "gpurun %s takes no %q", c.Command.FullName(), c.Args().Get(n))
	}
	return nil
}
