package main

import (
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/manual"
	"github.com/gpurun/gpurun/launcher/show"
)

func explainCommand(s stdio) *cli.Command {
	return &cli.Command{
		Name:      "explain",
		Usage:     "decide again from a run's journal, and show why",
		UsageText: "gpurun explain [--json] [RUN]",
		Description: "A RUN is .gpurun/JOB/RUN, a run's name, or a job's, which means its newest run; without one it is the newest of all.\n" +
			"Each decision is made again from the journal, with its facts and the remedies that were skipped.",
		Flags:  []cli.Flag{jsonFlag()},
		Action: func(c *cli.Context) error { return explain(c, s) },
	}
}

func explain(c *cli.Context, s stdio) error {
	r, err := namedRun(c)
	if err != nil {
		return err
	}
	if named, err := filepath.Abs(c.Args().First()); err != nil || named != r.Path {
		show.NewPage(s.err, nil).Printf("gpurun: the run is %s\n", r.Path)
	}
	events, err := journal.Read(r.Path)
	if err != nil {
		return errext.WithHint(err, "gpurun diagnose reads the ranks' output without the journal: name an attempt's folder")
	}
	replayed := launcher.Replay(events, manual.Version())
	if len(replayed) == 0 {
		show.NewPage(s.err, nil).Printf("gpurun: nothing has been decided yet in %s\n", r.Path)
	}
	if c.Bool("json") {
		return show.WriteJSON(s.out, nil, replayed)
	}
	for _, d := range replayed {
		show.NewPage(s.out, nil).Replayed(d, manual.Version())
	}
	if v := journal.RunOf(events).Verdict; v != nil {
		show.NewPage(s.out, nil).Next(v.Next)
	}
	return nil
}
