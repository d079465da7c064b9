package main

import (
	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/manual"
	"github.com/gpurun/gpurun/launcher/show"
)

func reportCommand(s stdio) *cli.Command {
	return &cli.Command{
		Name: "report", Usage: "write what happened in a run, and why, as one HTML page",
		UsageText: "gpurun report [--json] [-o FILE] [RUN]",
		Description: "RUN is a run directory, a folder above it, or a run's name below .gpurun; without it, the newest run here.\n" +
			"The page needs no other file. It is written into the run directory, also during the run.",
		Flags: []cli.Flag{jsonFlag(), &cli.StringFlag{Name: "output", Aliases: []string{"o"},
			Usage: "write it to `FILE`; - for stdout"}},
		Action: func(c *cli.Context) error {
			r, err := namedRun(c)
			if err != nil {
				return err
			}
			path, err := show.MakeReport(r.Path, c.String("output"), manual.Version(), s.out)
			switch {
			case err != nil || path == "":
				return err
			case c.Bool("json"):
				return show.WriteJSON(s.out, nil, map[string]string{"report": path})
			}
			show.NewPage(s.out, nil).Printf("%s\n", path)
			return nil
		},
	}
}
