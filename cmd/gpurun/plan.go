package main

import (
	"context"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/console"
	"github.com/gpurun/gpurun/launcher/node"
	"github.com/gpurun/gpurun/launcher/verb"
	"github.com/gpurun/gpurun/strategy"
)

func planCommand(s stdio) *cli.Command {
	return &cli.Command{
		Name:            "plan",
		Usage:           "show a job's plan and what each remedy would change, without starting anything",
		UsageText:       "gpurun plan [--json] train.toml\ngpurun plan [torchrun's flags] script.py [arguments …]",
		Description:     planText,
		SkipFlagParsing: true,
		Action:          func(c *cli.Context) error { return verb.OrHelp(c, plan(c.Context, c.Args().Slice(), s)) },
	}
}

const planText = `Shows each remedy with what it would change, or why it is not available,
and, once an earlier run was measured, the candidates: what plans are predicted to need.
With --json: {"job", "recipe", "python", "ranks", "plain", "ranks_reason", "ceiling_bytes", "plan",
"rungs": [{"rung", "available", "reason", "changed", "by", "training"}], "candidates": [{"plan", "peak_bytes", "seconds"}]}`

func plan(ctx context.Context, args []string, s stdio) error {
	p, own, err := prepareArgs(ctx, args)
	if err != nil {
		return err
	}
	defer p.close()
	w, err := wire(p, "", "", time.Now(), s)
	if err != nil {
		return err
	}
	inv := node.NewWorld(w.world, nil, nil).Inventory(ctx)
	job, words := p.Memory(os.Getenv, false).Recall(ctx, p.Policy(), p.StrategyJob(), func() strategy.Inventory { return inv })
	shown := p.survey(job, inv)
	shown.Remembered = words
	if own.JSON {
		return console.WriteJSON(s.out, p.secrets(), shown)
	}
	return shown.Show(s.out, p.secrets())
}

// survey returns the content of gpurun plan for a job, with its remembered plans.
func (p *prepared) survey(job strategy.Job, inv strategy.Inventory) console.Survey {
	_, evidence := p.Recipe()
	v := console.Survey{
		Job: p.Job.Name, Recipe: p.RecipeName(), Evidence: evidence, Python: p.Python(), Place: p.Place(),
		Ranks: p.Ranks, Launches: p.Launches(job.Ranks), Plain: p.Plain, OwnRanks: p.OwnRanks, Why: p.WhyOf(job.Ranks),
		Settings: p.Job.Settings(), Plan: p.Plan(), Value: p.Value, Recalled: job.Recalled, Resumes: p.Resumption(), Warnings: p.Warnings,
		Rungs:      strategy.Survey(p.Policy(), job, p.Plan(), inv),
		Candidates: strategy.Candidates(p.Policy(), job, p.Plan(), inv),
	}
	if job.Ceiling > 0 {
		v.Ceiling = &job.Ceiling
	}
	return v
}
