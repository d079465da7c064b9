// Command gpurun runs a training job as torchrun would, and rescues it when it
// runs out of memory.
//
// This package parses the command line, wires the parts together, and turns a
// verdict into an exit code. Each verb has a file of its own.
package main

import (
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/proc"
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
	app := newApp(s)
	fail := failure{people: errs}
	if asksJSON(app, args) {
		fail.programs = out
	}
	defer func() {
		if bug := recover(); bug != nil {
			code = fail.tell(errext.WithCode(errext.Errorf("report it with the lines above and the run directory's journal.jsonl",
				"this is a bug in gpurun: %v\n%s", bug, debug.Stack()), strategy.CodeBug))
		}
	}()
	if err := misnamed(args); err != nil {
		return fail.tell(err)
	}
	return fail.tell(app.Run(arrange(app, args)))
}

// newApp describes the command line. What is not a verb is a job to run.
func newApp(s streams) *cli.App {
	app := &cli.App{
		Name:            "gpurun",
		Usage:           "run a training job as torchrun would, and rescue it when it runs out of memory",
		UsageText:       "gpurun [flags] train.toml\ngpurun [flags] COMMAND…\ngpurun [flags] script.py [arguments …]\ngpurun VERB …",
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
			runCommand(s), planCommand(s), estimateCommand(s), initCommand(s), diagnoseCommand(s), explainCommand(s), recipesCommand(s), versionCommand(s), helpCommand(),
		},
	}
	for _, c := range app.Commands {
		c.OnUsageError, c.HideHelpCommand = onUsageError, true
		for _, sub := range c.Subcommands {
			sub.OnUsageError, sub.HideHelpCommand = onUsageError, true
		}
	}
	return app
}

// arrange puts the verb first, and a verb's flags before its arguments: flags
// may stand anywhere. A command line without a verb is one of run.
func arrange(app *cli.App, args []string) []string {
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
