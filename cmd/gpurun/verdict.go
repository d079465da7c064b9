package main

import (
	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/runs"
	"github.com/gpurun/gpurun/launcher/verb"
)

func verdictCommand(s stdio) *cli.Command {
	return &cli.Command{
		Name: "verdict", Usage: "print how a run ended, and end with its exit code", UsageText: "gpurun verdict [--json] [RUN]",
		Description: runs.VerdictDescription, Flags: []cli.Flag{jsonFlag()},
		Action: func(c *cli.Context) error {
			if err := verb.AtMost(c, 1); err != nil {
				return err
			}
			v, err := runs.ShowVerdict(s.out, c.Args().First(), c.Bool("json"))
			if err == nil && v.Code != 0 {
				err = &verb.ExitCode{Reason: v.Reason, Code: v.Code}
			}
			return err
		},
	}
}
