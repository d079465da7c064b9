package main

import (
	"cmp"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/show"

	"github.com/gpurun/gpurun/launcher/manual"
)

func runsCommand(s stdio) *cli.Command {
	return &cli.Command{
		Name:        "runs",
		Usage:       "list the runs below a directory, with their state",
		UsageText:   "gpurun runs [--json] [DIRECTORY]",
		Description: show.ListDescription,
		Flags:       []cli.Flag{jsonFlag()},
		Action:      func(c *cli.Context) error { return listRuns(c, s) },
	}
}

// namedRun returns the run that a verb's only argument names, else the newest.
func namedRun(c *cli.Context) (show.Entry, error) {
	if err := manual.AtMost(c, 1); err != nil {
		return show.Entry{}, err
	}
	return show.FindRun(".", c.Args().First())
}

func listRuns(c *cli.Context, s stdio) error {
	if err := manual.AtMost(c, 1); err != nil {
		return err
	}
	dir := cmp.Or(c.Args().First(), ".")
	all, err := show.MeasuredRuns(dir)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return show.WriteJSON(s.out, nil, all)
	}
	if len(all) == 0 {
		show.NewPage(s.err, nil).Printf("gpurun: there are no runs in %s\n", dir)
		return nil
	}
	return show.WriteTable(s.out, all, time.Now())
}
