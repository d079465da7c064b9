package doctor

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher/cluster"
	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
)

func jobNamed(p *patient) string {
	if p.job == nil {
		return "none is named: gpurun doctor train.toml looks at a job, too"
	}
	return ""
}

// trainFile checks that the job of a train.toml can be started as written.
func trainFile(_ context.Context, p *patient) Result {
	more := "gpurun plan " + commandline.PastePath(p.job.Path) + " shows more"
	if p.refused != nil {
		return problem(cmp.Or(errext.Hint(p.refused), more), "%v", p.refused)
	}
	if err := p.prepared.Startable(); err != nil {
		return problem(cmp.Or(errext.Hint(err), "name a program that is there"), "%v", err)
	}
	if warnings := p.prepared.Warnings; len(warnings) > 0 {
		return warn(more, "%s", strings.Join(warnings, "; "))
	}
	return found("%s: recipe %s, %s (%s)", p.job.Name, p.prepared.RecipeName(), counted(p.prepared.Ranks, "rank"),
		p.prepared.WhyRanks)
}

// place reports the scheduler or launcher that started gpurun.
func place(_ context.Context, p *patient) Result {
	at, err := cluster.Detect(p.environ)
	if err == nil {
		err = at.Refuse()
	}
	switch {
	case err != nil:
		return problem(errext.Hint(err), "%v", err)
	case len(at.Warnings) > 0:
		return warn("set GPURUN_NNODES", "%s", at.Warnings[0])
	case at.Kind == cluster.Host:
		return found("a plain host: no Slurm, Kubernetes or torchrun variables")
	}
	return found("%s", at.Evidence)
}

// soon: less time than this is worth a warning.
const soon = 30 * time.Minute

func timeLeft(ctx context.Context, p *patient) Result {
	at, err := cluster.Detect(p.environ)
	if err != nil || at.Job == "" {
		return skip("there is no scheduler's job")
	}
	end, again := at.Ends(ctx)
	if end.IsZero() {
		return found("no end is known")
	}
	return timeOf(time.Until(end), end, again)
}

// timeOf judges how long the job may run, and whether it is started again.
func timeOf(left time.Duration, end time.Time, again bool) Result {
	text := end.Format("until 2006-01-02 15:04, ") + left.Round(time.Minute).String() + " from now"
	switch {
	case left < soon:
		return warn("ask for more: --time (Slurm)", "%s", text)
	case !again:
		return warn("sbatch --requeue --signal=B:USR1@120: gpurun then continues by itself", "%s, and not started again",
			text)
	}
	return found("%s, and started again", text)
}
