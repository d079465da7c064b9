package main

import (
	"reflect"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/diagnose"
	"github.com/gpurun/gpurun/launcher/doctor"
	"github.com/gpurun/gpurun/launcher/estimate"
	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/launcher/manual"
	"github.com/gpurun/gpurun/launcher/show"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

func helpCommand() *cli.Command {
	return &cli.Command{
		Name:            "help",
		Aliases:         []string{"h"},
		Usage:           "show this, or the help of a verb",
		UsageText:       manual.HelpUsage,
		Description:     manual.HelpDescription,
		SkipFlagParsing: true,
		Action:          manual.Help(documents),
	}
}

// lastLine is the last line of a run.
var lastLine = manual.Tagged{
	Fields: map[string]any{"v": manual.Const{Value: 1}, "kind": manual.Const{Value: show.VerdictKind}},
	Of:     launcher.Verdict{},
}

// documents are what the verbs print with --json, from which their schemas are made.
var documents = manual.Documents{
	All: []manual.Document{
		{Verb: "run", Title: "the events of a run, the verdict last; journal.jsonl", Types: []any{lastLine},
			Events: launcher.EventTypes()},
		{Verb: "resume", Title: "the events of a run, the verdict last", Types: []any{lastLine},
			Events: launcher.EventTypes()},
		{Verb: "plan", Title: "a plan", Types: []any{show.Survey{}}},
		{Verb: "init", Title: "the plan of the job", Types: []any{show.Survey{}}},
		{Verb: "estimate", Title: "an estimate", Types: []any{estimate.Forecast{}}},
		{Verb: "diagnose", Title: "the diagnosis of a job", Types: []any{diagnose.FileDiagnosis{}}, Lines: true},
		{Verb: "explain", Title: "replayed decisions", Types: []any{[]launcher.Replayed{}}},
		{Verb: "status", Title: "the status of a run, or of several", Types: []any{launcher.Status{}, []launcher.Status{}}},
		{Verb: "runs", Title: "runs", Types: []any{[]show.Entry{}}},
		{Verb: "logs", Title: "the logs of a rank", Types: []any{show.Logs{}}},
		{Verb: "verdict", Title: "a verdict; verdict.json", Types: []any{launcher.Verdict{}}},
		{Verb: "clean", Title: "what was removed", Types: []any{show.Cleaned{}}},
		{Verb: "report", Title: "the path of a report", Types: []any{manual.Texts("report")}},
		{Verb: "recipes", Title: "recipes", Types: []any{[]show.ListedRecipe{}}},
		{Verb: "recipes detect", Title: "the recipe of a job", Types: []any{job.RecipeDetection{}}},
		{Verb: "doctor", Title: "checks of a machine", Types: []any{doctor.Report{}}},
		{Verb: "secret", Title: "a secret for the nodes of a launch", Types: []any{manual.Texts("secret")}},
		{Verb: "completion", Title: "a script for a shell", Types: []any{manual.Texts("shell", "script")}},
		{Verb: "version", Title: "the version of gpurun", Types: []any{versionDocument{}}},
		{Verb: "error", Title: "an error of any verb", Types: []any{manual.Failed{}}},
	},
	Spelled: map[reflect.Type]map[string]any{
		reflect.TypeFor[time.Time]():        {"type": "string", "format": "date-time"},
		reflect.TypeFor[strategy.Seconds](): {"type": "number", "description": "seconds"},
		reflect.TypeFor[strategy.Value]():   {"type": []string{"string", "integer", "boolean"}},
		reflect.TypeFor[cause.Weight]():     {"type": "string"},
	},
	As: map[reflect.Type]any{
		reflect.TypeFor[estimate.Forecast](): (*estimate.Forecast)(nil).JSON(),
		reflect.TypeFor[strategy.Fact]():     reflect.Zero(strategy.FactJSON).Interface(),
	},
}
