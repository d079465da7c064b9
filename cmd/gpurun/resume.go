package main

import (
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/launcher/runs"
)

func resumeCommand(s stdio) *cli.Command {
	return &cli.Command{
		Name:        "resume",
		Usage:       "start a run again where it stopped",
		UsageText:   "gpurun resume [--json] [--quiet] [--deadline TIME] [RUN]",
		Description: runs.ResumeDescription,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "print events as JSON lines on stdout, the verdict last", DisableDefaultText: true},
			&cli.BoolFlag{Name: "quiet", Usage: "show only failures and the end", DisableDefaultText: true},
			&cli.StringFlag{Name: "deadline", Usage: "when the run must be over, such as 4h; replaces the one that it began with"},
		},
		Action: func(c *cli.Context) error { return resume(c, s) },
	}
}

func resume(c *cli.Context, s stdio) error {
	r, err := namedRun(c)
	if err != nil {
		return err
	}
	start, err := r.Start()
	if err != nil {
		return err
	}
	if err := os.Chdir(start.Dir); err != nil {
		return fmt.Errorf("go to where the run was started: %w", err)
	}
	return r.Refused(runJob(c.Context, start, s, func(own *job.Own) {
		own.RunDir, own.RunID, own.IfTrained = r.Path, "", ""
		own.JSON, own.Quiet, own.Deadline = c.Bool("json"), c.Bool("quiet"), c.String("deadline")
	}))
}
