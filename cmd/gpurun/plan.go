package main

import (
	"context"
	"fmt"
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
		Description:     planText,
		SkipFlagParsing: true,
		Action:          func(c *cli.Context) error { return orHelp(c, plan(c.Context, c.Args().Slice(), s)) },
	}
}

const planText = `Each rung of the decision tree is shown with what it would change, or why it is not available.
With --json: {"job", "recipe", "python", "ranks", "plain", "ranks_reason", "ceiling_bytes", "plan",
"rungs": [{"rung", "available", "reason", "changed", "by"}]}`

// A shownPlan is what plan prints in JSON.
type shownPlan struct {
	Job     string           `json:"job"`
	Recipe  string           `json:"recipe"`
	Python  string           `json:"python"` // empty for a program
	Ranks   int              `json:"ranks"`
	Plain   bool             `json:"plain"` // one process that is given no rank
	Why     string           `json:"ranks_reason"`
	Ceiling *int64           `json:"ceiling_bytes"` // of each rank; null: none
	Plan    strategy.Plan    `json:"plan"`
	Rungs   []strategy.Offer `json:"rungs"`
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
		shown := shownPlan{
			Job: p.Job().Name, Recipe: p.RecipeName(), Python: p.Python(), Ranks: p.Ranks(), Plain: p.Plain(), Why: p.WhyRanks(), Plan: p.Plan(), Rungs: offers,
		}
		if held := p.StrategyJob().Ceiling; held > 0 {
			shown.Ceiling = &held
		}
		return console.WriteJSON(s.out, p.secrets(), shown)
	}
	return p.printPlan(s.out, offers)
}

func (p *prepared) printPlan(out *os.File, offers []strategy.Offer) error {
	j, page := p.Job(), console.NewPage(out, p.secrets())
	_, evidence := p.Recipe()
	page.Printf("job %s: %s, recipe %s, %s\n", j.Name, count(p.StrategyJob().Ranks), p.RecipeName(), p.Place())
	kind := ""
	if p.Plain() {
		kind = ", a process without a rank"
	}
	page.Printf("  ranks: %d%s: %s\n", p.Ranks(), kind, p.WhyRanks())
	for _, line := range evidence {
		page.Printf("  recognised by: %s\n", line)
	}
	if python := p.Python(); python != "" {
		page.Printf("  interpreter: %s\n", python)
	}
	if n := j.Limits.DeviceMemory; n > 0 {
		page.Printf("  device memory of each rank: at most %s (limits.device_memory)\n", strategy.GiB(n))
	}
	for _, text := range p.Warnings() {
		page.Printf("warning: %s\n", text)
	}
	page.Printf("  %s\n", p.Resumption())
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
		page.Printf("  gpurun does not know this job: no recipe matches, and there is no [knobs] table (gpurun recipes lists the frameworks)\n")
	}
	page.Printf("\nrungs:\n")
	for _, o := range offers {
		word, text := "–", o.Reason
		if o.Available {
			word, text = "✓", o.Changed.String()
			if o.By == string(strategy.ByHook) {
				text += ", inside the process"
			}
		}
		if o.Available && text == "" {
			text = "changes nothing in the job"
		}
		rows.Printf("  %s %s\t%s\n", word, o.Rung, text)
	}
	return table.Flush()
}

func count(ranks int) string {
	if ranks == 1 {
		return "1 rank"
	}
	return fmt.Sprintf("%d ranks", ranks)
}
