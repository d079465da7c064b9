package main

import (
	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/manual"
)

func helpCommand() *cli.Command {
	return &cli.Command{
		Name:            "help",
		Aliases:         []string{"h"},
		Usage:           "show this, or the help of a verb",
		UsageText:       manual.HelpUsage,
		Description:     manual.HelpDescription,
		SkipFlagParsing: true,
		Action:          manual.Help,
	}
}
