package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/node"
	"github.com/gpurun/gpurun/strategy"
)

func planCommand(s streams) *cli.Command {
	return &cli.Command{
		Name:            "plan",
		Usage:           "show a job's plan and what each rung would change, without starting anything",
		UsageText:       "gpurun plan [--json] train.toml\ngpurun plan [torchrun's flags] script.py [arguments …]",
		Description:     "with --json: {\"plan\", \"rungs\": [{\"rung\", \"available\", \"reason\", \"changed\"}]}",
		SkipFlagParsing: true,
		Action:          func(c *cli.Context) error { return orHelp(c, plan(c.Context, c.Args().Slice(), s)) },
	}
}

func plan(ctx context.Context, args []string, s streams) error {
	p, own, err := prepareArgs(ctx, args)
	if err != nil {
		return err
	}
	defer p.close()
	w, err := wire(p, "", time.Now(), s)
	if err != nil {
		return err
	}
	offers := strategy.Survey(p.Policy(), p.StrategyJob(), p.Plan(), node.NewWorld(w.world, nil, nil).Inventory(ctx))
	if own.JSON {
		return json.NewEncoder(s.out).Encode(struct {
			Plan  strategy.Plan    `json:"plan"`
			Rungs []strategy.Offer `json:"rungs"`
		}{p.Plan(), offers})
	}
	return p.printPlan(s.out, offers)
}

func (p *prepared) printPlan(out *os.File, offers []strategy.Offer) error {
	j := p.Job()
	_, evidence := p.Recipe()
	fmt.Fprintf(out, "job %s: ranks %d, recipe %s, %s\n", j.Name, p.StrategyJob().Ranks, p.RecipeName(), p.Place())
	for _, line := range evidence {
		fmt.Fprintf(out, "  recognised by: %s\n", line)
	}
	if python := p.Python(); python != "" {
		fmt.Fprintf(out, "  runs on: %s\n", python)
	}
	if n := j.Limits.DeviceMemory; n > 0 {
		fmt.Fprintf(out, "  each rank is held to: %s\n", strategy.GiB(n))
	}
	for _, text := range p.Warnings() {
		fmt.Fprintf(out, "warning: %s\n", text)
	}
	fmt.Fprintf(out, "  %s\n", p.resumption())
	fmt.Fprintln(out, "\nplan:")
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	said := false
	for _, k := range strategy.Knobs {
		value := p.Value(k)
		if value != "" {
			fmt.Fprintf(table, "  %s\t%s\n", k, value)
			said = true
		}
	}
	table.Flush()
	if !said {
		fmt.Fprintln(out, "  nothing is known of it: no recipe fits, and there is no [knobs] table (gpurun recipes lists the frameworks)")
	}
	fmt.Fprintln(out, "\nrungs:")
	for _, o := range offers {
		word, text := "–", o.Reason
		if o.Available {
			word, text = "✓", o.Changed.String()
		}
		if o.Available && text == "" {
			text = "changes nothing in the job"
		}
		fmt.Fprintf(table, "  %s %s\t%s\n", word, o.Rung, text)
	}
	return table.Flush()
}
