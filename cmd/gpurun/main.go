// Command gpurun runs a training job as torchrun would, and rescues it when it
// runs out of memory.
//
// This package parses the command line, wires the parts together, and turns a
// verdict into an exit code. Each verb has a file of its own.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/console"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/launcher/proc"
	"github.com/gpurun/gpurun/launcher/terminal"
	"github.com/gpurun/gpurun/strategy"
)

func main() {
	proc.MaybeGuard()
	os.Exit(Main(os.Args, os.Stdin, os.Stdout, os.Stderr))
}

// streams are the process's own. run hands in, out and err on to the ranks; with
// --json, out is stderr for them, and json alone is stdout.
type streams struct {
	in, out, err *os.File
	json         *os.File
}

// Main runs gpurun with a command line and returns its exit code.
func Main(args []string, in, out, errs *os.File) (code int) {
	s := streams{in: in, out: out, err: errs, json: out}
	defer func() {
		if bug := recover(); bug != nil {
			console.NewPage(errs, nil).Printf("gpurun: error: this is a bug in gpurun: %v\n", bug)
			fmt.Fprintf(errs, "%s", debug.Stack())
			fmt.Fprintln(errs, "gpurun: hint: report it with the lines above and the run directory's journal.jsonl")
			code = strategy.CodeBug
		}
	}()
	if err := misnamed(args); err != nil {
		return exitCode(err, errs)
	}
	app := newApp(s)
	return exitCode(app.Run(arrange(app, args)), errs)
}

// newApp describes the command line. What is not a verb is a job to run.
func newApp(s streams) *cli.App {
	app := &cli.App{
		Name:            "gpurun",
		Usage:           "run a training job as torchrun would, and rescue it when it runs out of memory",
		UsageText:       "gpurun [flags] train.toml\ngpurun [flags] script.py [arguments …]\ngpurun VERB …",
		HideVersion:     true,
		HideHelpCommand: true,
		Writer:          s.out,
		ErrWriter:       s.err,
		ExitErrHandler:  func(*cli.Context, error) {},
		CommandNotFound: nil,
		OnUsageError:    onUsageError,
		// A file's name may hold a comma.
		DisableSliceFlagSeparator: true,
		CustomAppHelpTemplate:     cli.AppHelpTemplate + appHelp,
		Commands: []*cli.Command{
			runCommand(s), planCommand(s), diagnoseCommand(s), explainCommand(s), recipesCommand(s), versionCommand(s), helpCommand(),
		},
	}
	for _, c := range app.Commands {
		c.OnUsageError, c.HideHelpCommand = onUsageError, true
	}
	return app
}

// arrange puts the verb first, and a verb's flags before its arguments: flags
// may stand anywhere. A command line without a verb is one of run.
func arrange(app *cli.App, args []string) []string {
	for i, word := range args[min(1, len(args)):] {
		if c := app.Command(word); c != nil {
			rest := slices.Concat(args[1:i+1], args[i+2:])
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

// flagsFirst moves the flags of a verb, with their values, before its arguments.
// Those of torchrun stay where they are: there, the script ends them.
func flagsFirst(c *cli.Command, words []string) []string {
	if c.SkipFlagParsing || slices.ContainsFunc(c.Subcommands, func(sub *cli.Command) bool { return slices.Contains(words, sub.Name) }) {
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

// exitCode prints an error as people read it, and turns it into an exit code: the
// error's own, or 2, since what has none arose before anything was started.
func exitCode(err error, w io.Writer) int {
	page := console.NewPage(w, nil)
	var known *ended
	var file *job.Error
	var usage *job.UsageError
	switch {
	case err == nil, errors.Is(err, job.ErrHelp):
		return 0
	case errors.As(err, &known):
		return known.code
	case errors.As(err, &file):
		page.Printf("gpurun: error: %s is not a job that can be started\n", file.File)
		blocks := strings.ReplaceAll(file.Error(), file.File, terminal.Line(file.File))
		fmt.Fprintln(w, terminal.Lines((*mask.Masker)(nil).Config(blocks))) // they quote the file
		return strategy.CodeUsage
	}
	for line := range strings.Lines(err.Error()) {
		page.Printf("gpurun: error: %s\n", strings.TrimRight(line, "\n"))
	}
	hint := errext.Hint(err)
	if hint == "" && errors.As(err, &usage) {
		hint = usage.Hint
	}
	if hint != "" {
		page.Printf("gpurun: hint: %s\n", hint)
	}
	return errext.Code(err, strategy.CodeUsage)
}
