package main

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/artifacts"
	"github.com/gpurun/gpurun/launcher/console"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/journal"
)

func explainCommand(s streams) *cli.Command {
	return &cli.Command{
		Name:      "explain",
		Usage:     "decide again from a run's journal, and show why",
		UsageText: "gpurun explain [--json] RUN-DIRECTORY",
		Description: "A run directory is .gpurun/JOB/RUN; of a folder above it, the newest run is taken.\n" +
			"Each decision is made again from the journal, with the facts that it rests on and the rungs that were skipped.",
		Flags:  []cli.Flag{jsonFlag()},
		Action: func(c *cli.Context) error { return explain(c, s) },
	}
}

func explain(c *cli.Context, s streams) error {
	if c.NArg() != 1 {
		return errext.Errorf("give the path of one run directory, such as .gpurun/job/run", "explain takes one run directory")
	}
	dir := c.Args().First()
	if filepath.Base(dir) == journal.File {
		dir = filepath.Dir(dir)
	}
	if run := artifacts.RunIn(dir); run != "" && run != dir {
		console.NewPage(s.err, nil).Printf("gpurun: the newest run in %s is %s\n", dir, run)
		dir = run
	}
	events, err := journal.Read(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return errext.Errorf("a run directory has a journal.jsonl, such as .gpurun/job/run", "%s is not a run directory of gpurun", dir)
	}
	if err != nil {
		return errext.WithHint(err, "gpurun diagnose reads the ranks' output without the journal: name an attempt's folder")
	}
	replayed := launcher.Replay(events, version())
	if len(replayed) == 0 {
		console.NewPage(s.err, nil).Printf("gpurun: nothing has been decided yet in %s\n", dir)
	}
	if c.Bool("json") {
		return console.WriteJSON(s.out, nil, replayed)
	}
	for _, r := range replayed {
		console.NewPage(s.out, nil).Replayed(r, version())
	}
	return nil
}
