package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/launcher/manual"
	"github.com/gpurun/gpurun/launcher/show"
)

func initCommand(s stdio) *cli.Command {
	return &cli.Command{
		Name:  "init",
		Usage: "write a train.toml for a script or a command",
		UsageText: "gpurun init [--dry-run] [--start [--start-timeout TIME]] [flags] [script.py [arguments …]] [--dry-run]\n" +
			"gpurun init [--dry-run] --from RUN",
		Description: "Settings whose names suggest batch size, accumulation and the like are comments; those that the job's process\n" +
			"confirmed, with --start (see gpurun plan) or in the run that --from names, are entries. The default script is the one in the\n" +
			"working directory. With --dry-run, first or last, nothing is written. A file that exists is never overwritten.",
		SkipFlagParsing: true,
		Action:          func(c *cli.Context) error { return manual.OrHelp(c, initJob(c.Context, c.Args().Slice(), s)) },
	}
}

func initJob(ctx context.Context, args []string, s stdio) error {
	args, dry, err := job.DraftArgs(args)
	if err != nil {
		return err
	}
	question, args, err := readQuestion(args)
	if err != nil {
		return err
	}
	p, own, err := prepareArgs(ctx, args, false)
	if err != nil {
		return err
	}
	defer p.close()
	history, err := question.ask(ctx, args, s.err)
	if err != nil {
		return err
	}
	text, err := p.Draft(history)
	if err == nil && !dry {
		err, text, args = job.WriteNew("train.toml", text), "wrote train.toml\n", []string{"train.toml"}
	}
	if err != nil {
		return err
	}
	page := show.NewPage(s.out, p.secrets())
	if own.JSON { // stdout is the plan's
		page, args = show.NewPage(s.err, p.secrets()), append([]string{"--json"}, args...)
	}
	page.Text(text + "\n")
	return plan(ctx, args, s)
}
