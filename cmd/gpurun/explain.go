package main

import (
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/artifacts"
	"github.com/gpurun/gpurun/launcher/console"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/strategy"
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
		printReplayed(console.NewPage(s.out, nil), r)
	}
	return nil
}

// printReplayed prints one decision and what it rests on. What another version of
// gpurun decided then stands before it.
func printReplayed(w *console.Page, r launcher.Replayed) {
	if r.Recorded != nil {
		w.Printf("then, by gpurun %s: %s\n", r.Recorded.Version, r.Recorded.Decision.Reason)
		printRule(w, r.Recorded.Decision)
		w.Printf("now, by gpurun %s: ", version())
	}
	w.Printf("%s\n", r.Decision.Reason)
	printRule(w, r.Decision)
	for _, i := range r.Diagnosis.Because {
		if i >= 0 && i < len(r.Evidence.Facts) {
			w.Printf("  because %s\n", launcher.Describe(r.Evidence.Facts[i]))
		}
	}
	if r.Stopped != nil {
		w.Printf("  %s after the start: %s\n", r.Stopped.At.Sub(r.Evidence.Started).Round(time.Millisecond), r.Stopped)
	}
	for _, k := range r.Decision.Skipped {
		w.Printf("  not %s: %s\n", k.Rung, k.Reason)
	}
	switch {
	case r.Recorded != nil && r.Same:
		w.Printf("  the same as was decided then\n")
	case r.Recorded != nil:
		w.Printf("  differs from what was decided then\n")
	case !r.Same:
		w.Printf("  differs from what was decided then: %s\n", r.Then)
	}
}

func printRule(w *console.Page, d strategy.Decision) {
	w.Printf("  rule %s", d.Rule)
	if d.Rung != "" {
		w.Printf(", rung %s", d.Rung)
	}
	w.Printf("\n")
}
