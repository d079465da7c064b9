package main

import (
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/launcher/show"
)

func resumeCommand(s stdio) *cli.Command {
	return &cli.Command{
		Name:        "resume",
		Usage:       "start a run again where it stopped",
		UsageText:   "gpurun resume [--json] [--quiet] [--deadline TIME] [--fresh [--numerics …]] [RUN [-- ARGUMENT…]]",
		Description: show.ResumeDescription,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "print events as JSON lines on stdout, the verdict last",
				DisableDefaultText: true},
			&cli.BoolFlag{Name: "quiet", Usage: "show only failures and the end", DisableDefaultText: true},
			&cli.StringFlag{Name: "deadline",
				Usage: "when the run must be over, such as 4h; replaces the one that it began with"},
			&cli.BoolFlag{Name: "fresh", Usage: "start the run's command again as a new run", DisableDefaultText: true},
			&cli.StringFlag{Name: "mode", Usage: "with --fresh: recovery.mode"},
			&cli.StringFlag{Name: "numerics", Usage: "with --fresh: recovery.numerics"},
			&cli.StringFlag{Name: "never", Usage: "with --fresh: recovery.never, separated by commas"},
			&cli.StringFlag{Name: "max-attempts", Usage: "with --fresh: recovery.max_attempts"},
			&cli.StringFlag{Name: "device-memory", Usage: "with --fresh: limits.device_memory"},
		},
		Action: func(c *cli.Context) error { return resume(c, s) },
	}
}

func resume(c *cli.Context, s stdio) error {
	r, start, err := show.StartOf(c.Args().Slice(), c.Bool("fresh"), c.String)
	if err != nil {
		return err
	}
	if err := os.Chdir(start.Dir); err != nil {
		return fmt.Errorf("go to where the run was started: %w", err)
	}
	dir := r.Path
	if c.Bool("fresh") {
		dir = ""
	}
	return r.Refused(runJob(c.Context, start, s, func(own *job.Own) {
		own.RunDir, own.RunID, own.IfTrained = dir, "", ""
		own.JSON, own.Quiet, own.Deadline = c.Bool("json"), c.Bool("quiet"), c.String("deadline")
	}))
}
