package main

import (
	"cmp"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/console"
	"github.com/gpurun/gpurun/launcher/runs"
	"github.com/gpurun/gpurun/launcher/verb"
)

func runsCommand(s stdio) *cli.Command {
	return &cli.Command{
		Name:        "runs",
		Usage:       "list the runs below a directory, with their state",
		UsageText:   "gpurun runs [--json] [DIRECTORY]",
		Description: runs.ListDescription,
		Flags:       []cli.Flag{jsonFlag()},
		Action:      func(c *cli.Context) error { return listRuns(c, s) },
	}
}

// namedRun returns the run that a verb's only argument names, else the newest.
func namedRun(c *cli.Context) (runs.Entry, error) {
	if err := verb.AtMost(c, 1); err != nil {
		return runs.Entry{}, err
	}
	return runs.Find(".", c.Args().First())
}

func listRuns(c *cli.Context, s stdio) error {
	if err := verb.AtMost(c, 1); err != nil {
		return err
	}
	dir := cmp.Or(c.Args().First(), ".")
	all, err := runs.Measured(dir)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return console.WriteJSON(s.out, nil, all)
	}
	if len(all) == 0 {
		console.NewPage(s.err, nil).Printf("gpurun: there are no runs in %s\n", dir)
		return nil
	}
	return runs.WriteTable(s.out, all, time.Now())
}
