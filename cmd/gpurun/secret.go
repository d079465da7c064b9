package main

import (
	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/manual"
	"github.com/gpurun/gpurun/launcher/nodes"
)

func secretCommand(s stdio) *cli.Command {
	return &cli.Command{
		Name:      "secret",
		Usage:     "print a new secret, by which the nodes of a launch authenticate each other",
		UsageText: "gpurun secret [--json]",
		Flags:     []cli.Flag{jsonFlag()},
		Action: func(c *cli.Context) error {
			if err := manual.AtMost(c, 0); err != nil {
				return err
			}
			return nodes.PrintSecret(s.out, c.Bool("json"))
		},
	}
}
