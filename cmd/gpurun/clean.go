package main

import (
	"cmp"
	"errors"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/show"

	"github.com/gpurun/gpurun/launcher/manual"
)

func cleanCommand(s stdio) *cli.Command {
	return &cli.Command{
		Name:        "clean",
		Usage:       "remove old run directories",
		UsageText:   "gpurun clean [--older-than AGE] [--keep N] [--dry-run] [--json] [DIRECTORY]",
		Description: show.CleanDescription,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "older-than", Value: "14d", Usage: "how long ago a run has to have ended: 14d, 2w, 36h"},
			&cli.UintFlag{Name: "keep", Value: 5, Usage: "how many of the newest runs of each job stay"},
			&cli.BoolFlag{Name: "dry-run", Usage: "show what would be removed, and remove nothing", DisableDefaultText: true},
			jsonFlag(),
		},
		Action: func(c *cli.Context) error { return clean(c, s) },
	}
}

func clean(c *cli.Context, s stdio) error {
	if err := manual.AtMost(c, 1); err != nil {
		return err
	}
	age, err := show.ParseAge(c.String("older-than"))
	if err != nil {
		return err
	}
	cleaning := show.Cleaning{Age: age, Asked: c.IsSet("older-than"), Keep: int(c.Uint("keep")), Dry: c.Bool("dry-run"),
		Now: time.Now()}
	done, failed := cleaning.Clean(cmp.Or(c.Args().First(), "."))
	if c.Bool("json") && failed == nil { // else the error is the only document
		return show.WriteJSON(s.out, nil, done)
	}
	if !c.Bool("json") {
		_, err = done.WriteTo(s.out)
	}
	return errors.Join(failed, err)
}
