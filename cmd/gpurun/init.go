package main

import (
	"context"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/console"
	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/launcher/verb"
)

func initCommand(s stdio) *cli.Command {
	return &cli.Command{
		Name:      "init",
		Usage:     "write a train.toml for a script or a command, with the settings that its source shows",
		UsageText: "gpurun init [--dry-run] [torchrun's flags] [script.py [arguments …]] [--dry-run]",
		Description: "Certain settings are entries, likely ones are comments with a reason; run gpurun plan next. The default script is\n" +
			"the one in the working directory. With --dry-run, first or last, nothing is written. A file that exists is never overwritten.",
		SkipFlagParsing: true,
		Action:          func(c *cli.Context) error { return verb.OrHelp(c, initJob(c.Context, c.Args().Slice(), s)) },
	}
}

func initJob(ctx context.Context, args []string, s stdio) error {
	args, dry, err := job.DraftArgs(args)
	if err != nil {
		return err
	}
	p, own, err := prepareArgs(ctx, args)
	if err != nil {
		return err
	}
	defer p.close()
	text, err := p.Draft()
	if err == nil && !dry {
		err, text, args = job.WriteNew("train.toml", text), "wrote train.toml\n", []string{"train.toml"}
	}
	if err != nil {
		return err
	}
	page := console.NewPage(s.out, p.secrets())
	if own.JSON { // stdout is the plan's
		page, args = console.NewPage(s.err, p.secrets()), append([]string{"--json"}, args...)
	}
	for line := range strings.SplitSeq(text+"\n", "\n") {
		page.Printf("%s\n", line)
	}
	return plan(ctx, args, s)
}
