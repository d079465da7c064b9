package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/strategy"
)

func planCommand(s streams) *cli.Command {
	return &cli.Command{
		Name:            "plan",
		Usage:           "show a job's plan and what each rung would change, without starting anything",
		UsageText:       "gpurun plan [--json] train.toml\ngpurun plan [torchrun's flags] script.py [arguments …]",
		SkipFlagParsing: true,
		Action:          func(c *cli.Context) error { return plan(c.Context, c.Args().Slice(), s) },
	}
}

func plan(ctx context.Context, args []string, s streams) error {
	p, own, err := prepareArgs(ctx, args)
	if err != nil {
		return err
	}
	defer p.close()
	w := &world{p: p, began: time.Now()}
	offers := strategy.Survey(p.policy(), p.strategyJob(), p.plan, w.Inventory(ctx))
	if own.JSON {
		return json.NewEncoder(s.out).Encode(struct {
			Plan  strategy.Plan    `json:"plan"`
			Rungs []strategy.Offer `json:"rungs"`
		}{p.plan, offers})
	}
	return p.printPlan(s.out, offers)
}

func (p *prepared) printPlan(out *os.File, offers []strategy.Offer) error {
	fmt.Fprintf(out, "job %s: ranks %d, recipe %s, %s\n", p.job.Name, p.at.Ranks, p.recipeName(), p.placeLine())
	for _, line := range p.evidence {
		fmt.Fprintf(out, "  recognised by: %s\n", line)
	}
	for _, text := range p.warnings {
		fmt.Fprintf(out, "warning: %s\n", text)
	}
	fmt.Fprintln(out, "\nplan:")
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, k := range strategy.Knobs {
		switch r, known := p.knobs[k]; {
		case p.plan[k] != "":
			fmt.Fprintf(table, "  %s\t%s\n", k, p.plan[k])
		case known && r.Scope == strategy.ScopeDerived:
			fmt.Fprintf(table, "  %s\tderived by the job\n", k)
		}
	}
	table.Flush()
	fmt.Fprintln(out, "\nrungs:")
	for _, o := range offers {
		word := "–"
		text := o.Reason
		if o.Available {
			word, text = "✓", o.Changed.String()
		}
		fmt.Fprintf(table, "  %s %s\t%s\n", word, o.Rung, text)
	}
	return table.Flush()
}
