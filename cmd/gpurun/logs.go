package main

import (
	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/show"
)

func logsCommand(s stdio) *cli.Command {
	return &cli.Command{
		Name:        "logs",
		Usage:       "show what a rank wrote, or follow it",
		UsageText:   "gpurun logs [-f] [--attempt N] [--rank K] [--stdout | --stderr] [RUN]",
		Description: show.LogsDescription,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "also show new output, until the run ends",
				DisableDefaultText: true},
			&cli.IntFlag{Name: "attempt", Value: show.AnyRank, Usage: "which attempt `N`", DefaultText: "the newest"},
			&cli.IntFlag{Name: "rank", Value: show.AnyRank, Usage: "which rank `K`", DefaultText: "the one that failed, else 0"},
			&cli.BoolFlag{Name: "stdout", Usage: "only what it wrote to stdout", DisableDefaultText: true},
			&cli.BoolFlag{Name: "stderr", Usage: "only what it wrote to stderr", DisableDefaultText: true},
			jsonFlag(),
		},
		Action: func(c *cli.Context) error { return logs(c, s) },
	}
}

func logs(c *cli.Context, s stdio) error {
	r, err := namedRun(c)
	if err != nil {
		return err
	}
	follow := show.LogFollower{Run: r, Attempt: c.Int("attempt"), Rank: c.Int("rank")}
	if oneStream := c.Bool("stdout") != c.Bool("stderr"); !oneStream {
		follow.Begins = func(l show.Logs) { show.NewPage(s.err, nil).Printf("gpurun: %s\n", l.Title()) }
	}
	if c.Bool("stdout") || !c.Bool("stderr") {
		follow.To.Stdout = s.out
	}
	if c.Bool("stderr") || !c.Bool("stdout") {
		follow.To.Stderr = s.err
	}
	switch {
	case c.Bool("json"):
		l, err := r.Logs(follow.Attempt, follow.Rank)
		if err != nil {
			return err
		}
		return show.WriteJSON(s.out, nil, l)
	case c.Bool("follow"):
		return follow.Follow()
	}
	return follow.Show()
}
