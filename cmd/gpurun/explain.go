package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/strategy"
)

func explainCommand(s streams) *cli.Command {
	return &cli.Command{
		Name:      "explain",
		Usage:     "decide again from a run's journal, and show why",
		ArgsUsage: "RUN-DIRECTORY",
		Flags:     []cli.Flag{jsonFlag()},
		Action: func(c *cli.Context) error {
			if c.NArg() != 1 {
				return usagef("give the path of one run directory, such as .gpurun/job/run", "explain takes one run directory")
			}
			dir := c.Args().First()
			if filepath.Base(dir) == journal.File {
				dir = filepath.Dir(dir)
			}
			if run := runIn(dir); run != "" && run != dir {
				fmt.Fprintf(s.err, "gpurun: the newest run in %s is %s\n", dir, run)
				dir = run
			}
			events, err := journal.Read(dir)
			if errors.Is(err, fs.ErrNotExist) {
				return usagef("a run directory has a journal.jsonl, such as .gpurun/job/run", "%s is no run directory of gpurun", dir)
			}
			if err != nil {
				return &usageError{err: err, hint: "gpurun diagnose reads the ranks' output without the journal: name an attempt's folder"}
			}
			replayed := replay(events)
			if len(replayed) == 0 {
				fmt.Fprintf(s.err, "gpurun: nothing was decided yet in %s\n", dir)
			}
			if c.Bool("json") {
				return json.NewEncoder(s.out).Encode(replayed)
			}
			for _, r := range replayed {
				r.print(s)
			}
			return nil
		},
	}
}

// replayed is one decision of a run, made again from the same facts.
type replayed struct {
	Attempt   int                `json:"attempt"`
	Diagnosis strategy.Diagnosis `json:"diagnosis"`
	Decision  strategy.Decision  `json:"decision"`
	// Same says that the journal holds the same decision.
	Same bool `json:"same"`
	// Then is what the journal holds where it differs.
	Then     string `json:"then,omitempty"`
	evidence strategy.Evidence
}

// replay goes through a journal with the strategy of today.
func replay(events []launcher.Event) []replayed {
	out := []replayed{}
	var began launcher.Began
	var state launcher.State
	var evidence strategy.Evidence
	for _, e := range events {
		switch e := e.(type) {
		case launcher.Began:
			began = e
		case launcher.Started:
			state.Next = launcher.Next{N: e.N, Plan: e.Plan, Rung: e.Rung, Checkpoint: e.Checkpoint}
		case launcher.Ended:
			evidence = e.Evidence
			state.End(evidence, strategy.Diagnose(evidence))
		case launcher.Decided:
			last := state.History[len(state.History)-1]
			d := strategy.Decide(began.Policy, began.Job, state.History, e.Inventory)
			r := replayed{Attempt: last.N, Diagnosis: last.Diagnosis, Decision: d, evidence: evidence}
			r.Same = maps.Equal(d.Next, e.Decision.Next) && d.Outcome == e.Decision.Outcome && d.Rung == e.Decision.Rung
			if !r.Same {
				r.Then = e.Decision.Reason
			}
			out = append(out, r)
		}
	}
	return out
}

func (r replayed) print(s streams) {
	fmt.Fprintf(s.out, "%s\n", r.Decision.Reason)
	fmt.Fprintf(s.out, "  rule %s", r.Decision.Rule)
	if r.Decision.Rung != "" {
		fmt.Fprintf(s.out, ", rung %s", r.Decision.Rung)
	}
	fmt.Fprintln(s.out)
	for _, i := range r.Diagnosis.Because {
		if i < len(r.evidence.Facts) {
			fmt.Fprintf(s.out, "  because %s\n", fact(r.evidence.Facts[i]))
		}
	}
	for _, k := range r.Decision.Skipped {
		fmt.Fprintf(s.out, "  not %s: %s\n", k.Rung, k.Reason)
	}
	if !r.Same {
		fmt.Fprintf(s.out, "  differs from what was decided then: %s\n", r.Then)
	}
}

// fact says a fact in one line.
func fact(f strategy.Fact) string {
	who := "the node"
	if f.Rank >= 0 {
		who = fmt.Sprintf("rank %d", f.Rank)
	}
	switch {
	case f.Finding != nil:
		return fmt.Sprintf("%s, %s, line %d: %s", who, f.Source, f.Finding.Line, f.Finding.Text)
	case f.Exit != nil && f.Exit.Signal != 0:
		return fmt.Sprintf("%s was ended by signal %d", who, f.Exit.Signal)
	case f.Exit != nil:
		return fmt.Sprintf("%s ended with exit code %d", who, f.Exit.Code)
	case f.Kills != nil:
		return fmt.Sprintf("%s: the kernel killed %d processes of %s for want of memory", who, f.Kills.Count, f.Kills.Group)
	case f.Tenant != nil:
		return fmt.Sprintf("%s: others hold %s on %s", who, strategy.GiB(f.Tenant.Bytes), f.Tenant.Device)
	case f.Stuck != nil:
		return fmt.Sprintf("%s: process %d cannot be ended (%s)", who, f.Stuck.PID, f.Stuck.Channel)
	}
	return fmt.Sprintf("%s: %s", who, f.Gap)
}
