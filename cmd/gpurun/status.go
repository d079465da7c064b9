package main

import (
	"encoding/json"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/manual"
	"github.com/gpurun/gpurun/launcher/show"
)

func statusCommand(s stdio) *cli.Command {
	return &cli.Command{
		Name:      "status",
		Usage:     "show a run's step, speed and memory",
		UsageText: "gpurun status [--json] [RUN]",
		Description: "RUN is a run directory, or the name of a run below .gpurun. Without one it is the run in progress below\n" +
			"the working directory (a table if there are several), else the newest. On a terminal a run is followed until it ends.",
		Flags:  []cli.Flag{jsonFlag()},
		Action: func(c *cli.Context) error { return showStatus(c, s) },
	}
}

func showStatus(c *cli.Context, s stdio) error {
	if err := manual.AtMost(c, 1); err != nil {
		return err
	}
	runs, err := show.FindStatus(".", c.Args().First())
	switch runs = show.DefaultRuns(runs); {
	case err != nil:
		return err
	case !c.Bool("json"):
		return show.ShowStatus(c.Context, s.out, runs)
	case len(runs) == 1:
		return json.NewEncoder(s.out).Encode(runs[0])
	}
	return json.NewEncoder(s.out).Encode(runs)
}
