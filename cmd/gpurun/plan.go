package main

import (
	"context"
	"os"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/console"
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
		return console.WriteJSON(s.out, p.secrets(), struct {
			Plan  strategy.Plan    `json:"plan"`
			Rungs []strategy.Offer `json:"rungs"`
		}{p.Plan(), offers})
	}
	return p.printPlan(s.out, offers)
}

func (p *prepared) printPlan(out *os.File, offers []strategy.Offer) error {
	j, page := p.Job(), console.NewPage(out, p.secrets())
	_, evidence := p.Recipe()
	page.Printf("job %s: ranks %d, recipe %s, %s\n", j.Name, p.StrategyJob().Ranks, p.RecipeName(), p.Place())
	for _, line := range evidence {
		page.Printf("  recognised by: %s\n", line)
	}
	if python := p.Python(); python != "" {
		page.Printf("  runs on: %s\n", python)
	}
	if n := j.Limits.DeviceMemory; n > 0 {
		page.Printf("  each rank is held to: %s\n", strategy.GiB(n))
	}
	for _, text := range p.Warnings() {
		page.Printf("warning: %s\n", text)
	}
	page.Printf("\nplan:\n")
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	rows, said := page.On(table), false
	for _, k := range strategy.Knobs {
		value := p.Value(k)
		if value != "" {
			rows.Printf("  %s\t%s\n", k, value)
			said = true
		}
	}
	table.Flush()
	if !said {
		page.Printf("  nothing is known of it: no recipe fits, and there is no [knobs] table (gpurun recipes lists the frameworks)\n")
	}
	page.Printf("\nrungs:\n")
	for _, o := range offers {
		word, text := "–", o.Reason
		if o.Available {
			word, text = "✓", o.Changed.String()
		}
		if o.Available && text == "" {
			text = "changes nothing in the job"
		}
		rows.Printf("  %s %s\t%s\n", word, o.Rung, text)
	}
	return table.Flush()
}
