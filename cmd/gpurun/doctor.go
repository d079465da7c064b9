package main

import (
	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/doctor"
	"github.com/gpurun/gpurun/launcher/manual"
	"github.com/gpurun/gpurun/launcher/node"
)

func doctorCommand(s stdio) *cli.Command {
	return &cli.Command{
		Name: "doctor", Usage: "check whether this machine, and a job on it, can train, and show what to repair",
		UsageText: doctor.Usage, Description: doctor.Description, Flags: doctor.Flags(),
		Action: func(c *cli.Context) error {
			ctx, signals := node.Listen(c.Context)
			defer signals.Close()
			code, err := doctor.Run(ctx, c, s.out)
			if err != nil || code == 0 {
				return err
			}
			return &manual.ExitCode{Code: code}
		},
	}
}
