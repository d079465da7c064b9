package main

import (
	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/manual"
	"github.com/gpurun/gpurun/launcher/show"
)

func verdictCommand(s stdio) *cli.Command {
	return &cli.Command{
		Name: "verdict", Usage: "print how a run ended, and end with its exit code",
		UsageText:   "gpurun verdict [--json] [RUN]",
		Description: show.VerdictDescription, Flags: []cli.Flag{jsonFlag()},
		Action: func(c *cli.Context) error {
			if err := manual.AtMost(c, 1); err != nil {
				return err
			}
			v, err := show.ShowVerdict(s.out, c.Args().First(), c.Bool("json"))
			if err == nil && v.Code != 0 {
				err = &manual.ExitCode{Reason: v.Reason, Code: v.Code}
			}
			return err
		},
	}
}
