package main

import (
	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/manual"
)

func completionCommand(s stdio) *cli.Command {
	return &cli.Command{
		Name: "completion", Usage: "print the script by which a shell completes gpurun's command line",
		UsageText: manual.CompletionUsage, Description: manual.CompletionDescription, Flags: []cli.Flag{jsonFlag()},
		Action: func(c *cli.Context) error { return manual.Completion(c, s.out) },
	}
}
