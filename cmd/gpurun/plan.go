package main

import (
	"context"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/manual"
	"github.com/gpurun/gpurun/launcher/node"
	"github.com/gpurun/gpurun/launcher/show"
	"github.com/gpurun/gpurun/strategy"
)

func planCommand(s stdio) *cli.Command {
	return &cli.Command{
		Name:  "plan",
		Usage: "show a job's plan and what each remedy would change",
		UsageText: "gpurun plan [--start [--start-timeout TIME]] [--json] train.toml\n" +
			"gpurun plan [--start …] [--json] [torchrun's flags] script.py [arguments …]",
		Description:     planText,
		SkipFlagParsing: true,
		Action:          func(c *cli.Context) error { return manual.OrHelp(c, plan(c.Context, c.Args().Slice(), s)) },
	}
}

const planText = `Shows each remedy with what it would change, or why it is not available,
and, once an earlier run was measured, the candidates: what plans are predicted to need. Nothing is started.
With --start, which is first, the job runs until its first batch has reached the model, at most 2 minutes
(--start-timeout), and is ended as by Ctrl-C: the plan then has what its processes reported.
With --json: {"job", "recipe", "python", "ranks", "plain", "ranks_reason", "ceiling_bytes", "plan",
"rungs": [{"rung", "available", "reason", "changed", "by", "training"}], "candidates": [{"plan", "peak_bytes", "seconds"}]}`

func plan(ctx context.Context, args []string, s stdio) error {
	question, args, err := readQuestion(args)
	if err != nil {
		return err
	}
	p, own, err := prepareArgs(ctx, args, false)
	if err != nil {
		return err
	}
	defer p.close()
	w, err := wire(p, "", "", time.Now(), s)
	if err != nil {
		return err
	}
	inv := node.NewWorld(w.world, nil, nil).Inventory(ctx)
	described, words := p.Memory(os.Getenv, false).Recall(ctx, p.Policy(), p.StrategyJob(),
		func() strategy.Inventory { return inv })
	shown := p.survey(described, inv)
	shown.Remembered = words
	history, err := question.ask(ctx, args, s.err)
	if err != nil {
		return err
	}
	shown.Started(history, p.Policy(), described, inv)
	return shown.Write(s.out, p.secrets(), own.JSON)
}

// survey returns the content of gpurun plan for a job, with its remembered plans.
func (p *prepared) survey(job strategy.Job, inv strategy.Inventory) show.Survey {
	return show.Survey{
		Job: p.Job.Name, Recipe: p.RecipeName(), Evidence: p.Evidence(), Python: p.Python(), Place: p.Place(),
		Ranks: p.Ranks, Launches: p.Launches(job.Ranks), Plain: p.Plain, OwnRanks: p.OwnRanks, Why: p.WhyOf(job.Ranks),
		Settings: p.Job.Settings(), Plan: p.Plan(), Likely: job.Likely(), Value: p.Value,
		Ceiling:  show.LimitBytes(job.Ceiling),
		Recalled: job.Recalled, Resumes: p.Resumption(), Warnings: p.Warnings,
		Remedies:   strategy.Survey(p.Policy(), job, p.Plan(), inv),
		Candidates: strategy.Candidates(p.Policy(), job, p.Plan(), inv),
	}
}
