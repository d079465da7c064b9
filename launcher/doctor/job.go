package doctor

import (
	"context"
	"strings"

	"github.com/gpurun/gpurun/launcher/errext"
)

// jobChecks: whether the job of a train.toml can be started as it is written.
var jobChecks = []check{
	{name: "train.toml", look: theJob},
	{name: "notify", look: notified},
	{name: "metrics", look: measured, late: diskHangs},
}

// noJob is why nothing of a job is looked at.
const noJob = "none is named: gpurun doctor train.toml looks at a job, too"

func theJob(_ context.Context, p *patient) Result {
	switch {
	case p.job == nil:
		return skip(noJob)
	case p.refused != nil:
		return problem(fixOr(p.refused, "gpurun plan "+p.job.Path+" says more"), "%v", p.refused)
	}
	if err := p.prepared.Startable(); err != nil {
		return problem(fixOr(err, "name a program that is there"), "%v", err)
	}
	if warnings := p.prepared.Warnings(); len(warnings) > 0 {
		return warn("gpurun plan "+p.job.Path+" says more", "%s", strings.Join(warnings, "; "))
	}
	return found("%s: recipe %s, %s (%s)", p.job.Name, p.prepared.RecipeName(), counted(p.prepared.Ranks(), "rank"), p.prepared.WhyRanks())
}

// fixOr is an error's hint, or another one.
func fixOr(err error, otherwise string) string {
	if hint := errext.Hint(err); hint != "" {
		return hint
	}
	return otherwise
}
