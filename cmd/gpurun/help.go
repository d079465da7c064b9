package main

import (
	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/verb"
)

func helpCommand() *cli.Command {
	return &cli.Command{
		Name:            "help",
		Aliases:         []string{"h"},
		Usage:           "show this, or the help of a verb",
		UsageText:       "gpurun help [VERB]\ngpurun VERB --help",
		SkipFlagParsing: true,
		Action:          verb.Show,
	}
}
