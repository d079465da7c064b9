package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/estimate"
	"github.com/gpurun/gpurun/launcher/manual"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/launcher/show"
)

func estimateCommand(s stdio) *cli.Command {
	return &cli.Command{
		Name: "estimate", SkipFlagParsing: true,
		Usage:       "estimate the GPU memory of a model or a job before it runs",
		UsageText:   estimate.Usage,
		Description: estimate.Description,
		Action:      func(c *cli.Context) error { return manual.OrHelp(c, estimateJob(c.Context, c.Args().Slice(), s)) },
	}
}

func estimateJob(ctx context.Context, args []string, s stdio) error {
	asked, err := estimate.Read(args)
	if err != nil {
		return err
	}
	var secrets *mask.Masker
	if asked.Job != nil {
		p, _, err := prepareArgs(ctx, asked.Job, true)
		if err != nil {
			return err
		}
		defer p.close()
		asked.Of(p.Prepared, nil)
		secrets = p.secrets()
	}
	answer, err := asked.Answer()
	if err != nil {
		return err
	}
	if asked.JSON {
		return show.WriteJSON(s.out, secrets, answer)
	}
	show.NewPage(s.out, secrets).Text(answer.Text())
	return nil
}
