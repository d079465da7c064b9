// Command gpurun runs a training job as torchrun would, and rescues it when it
// runs out of memory.
//
// This package parses the command line, wires the parts together, and turns a
// verdict into an exit code. Each verb has its own file.
package main

import (
	"os"
	"runtime/debug"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/manual"
	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/strategy"
)

func main() {
	ranks.MaybeGuard()
	os.Exit(Main(os.Args, os.Stdin, os.Stdout, os.Stderr))
}

// stdio are the standard files of the process. run passes in, out and err on to the ranks. With --json, their
// out is stderr, and only json is stdout.
type stdio struct {
	in, out, err *os.File
	json         *os.File
}

// Main runs gpurun with a command line and returns its exit code.
func Main(args []string, in, out, errs *os.File) (code int) {
	s := stdio{in: in, out: out, err: errs, json: out}
	app := newApp(s)
	fail := manual.Failure{People: errs}
	if manual.AsksJSON(app, args) {
		fail.Programs = out
	}
	defer func() {
		if bug := recover(); bug != nil {
			code = fail.Report(errext.WithCode(
				errext.Errorf("report it with the lines above and the run directory's journal.jsonl",
					"this is a bug in gpurun: %v\n%s", bug, debug.Stack()), strategy.CodeBug))
		}
	}()
	if err := manual.Misnamed(app, args); err != nil {
		return fail.Report(err)
	}
	return fail.Report(app.Run(manual.Arrange(app, args)))
}

// newApp describes the command line. A first word that is no verb begins a job to run.
func newApp(s stdio) *cli.App {
	app := &cli.App{
		Name:            "gpurun",
		Usage:           "run a training job as torchrun would, and rescue it when it runs out of memory",
		UsageText:       "gpurun [flags] train.toml\ngpurun [flags] COMMAND…\ngpurun [flags] script.py [arguments …]\ngpurun VERB …",
		HideVersion:     true,
		Writer:          s.out,
		ErrWriter:       s.err,
		ExitErrHandler:  func(*cli.Context, error) {},
		CommandNotFound: nil,
		// A file name may contain a comma.
		DisableSliceFlagSeparator: true,
		Commands: []*cli.Command{
			runCommand(s),
			planCommand(s),
			estimateCommand(s),
			initCommand(s),
			doctorCommand(s),
			diagnoseCommand(s),
			explainCommand(s),
			runsCommand(s),
			statusCommand(s),
			reportCommand(s),
			logsCommand(s),
			verdictCommand(s),
			resumeCommand(s),
			cleanCommand(s),
			recipesCommand(s),
			secretCommand(s),
			completionCommand(s),
			versionCommand(s),
			helpCommand(),
		},
	}
	manual.Prepare(app)
	return app
}
