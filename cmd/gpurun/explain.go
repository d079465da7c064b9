package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
		fmt.Fprintf(s.err, "gpurun: the newest run in %s is %s\n", dir, run)
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
		fmt.Fprintf(s.err, "gpurun: nothing has been decided yet in %s\n", dir)
	}
	if c.Bool("json") {
		text, err := json.Marshal(replayed)
		if err != nil {
			return fmt.Errorf("encode the decisions: %w", err)
		}
		_, err = fmt.Fprintf(s.out, "%s\n", console.WithNanoseconds(text))
		return err
	}
	for _, r := range replayed {
		printReplayed(s.out, r)
	}
	return nil
}

// printReplayed prints one decision and what it rests on. What another version of
// gpurun decided then stands before it.
func printReplayed(w io.Writer, r launcher.Replayed) {
	if r.Recorded != nil {
		fmt.Fprintf(w, "then, by gpurun %s: %s\n", r.Recorded.Version, r.Recorded.Decision.Reason)
		printRule(w, r.Recorded.Decision)
		fmt.Fprintf(w, "now, by gpurun %s: ", version())
	}
	fmt.Fprintf(w, "%s\n", r.Decision.Reason)
	printRule(w, r.Decision)
	for _, i := range r.Diagnosis.Because {
		if i >= 0 && i < len(r.Evidence.Facts) {
			fmt.Fprintf(w, "  because %s\n", launcher.Describe(r.Evidence.Facts[i]))
		}
	}
	if r.Stopped != nil {
		fmt.Fprintf(w, "  %s after the start: %s\n", r.Stopped.At.Sub(r.Evidence.Started).Round(time.Millisecond), r.Stopped)
	}
	for _, k := range r.Decision.Skipped {
		fmt.Fprintf(w, "  not %s: %s\n", k.Rung, k.Reason)
	}
	switch {
	case r.Recorded != nil && r.Same:
		fmt.Fprintln(w, "  the same as was decided then")
	case r.Recorded != nil:
		fmt.Fprintln(w, "  differs from what was decided then")
	case !r.Same:
		fmt.Fprintf(w, "  differs from what was decided then: %s\n", r.Then)
	}
}

func printRule(w io.Writer, d strategy.Decision) {
	fmt.Fprintf(w, "  rule %s", d.Rule)
	if d.Rung != "" {
		fmt.Fprintf(w, ", rung %s", d.Rung)
	}
	fmt.Fprintln(w)
}
