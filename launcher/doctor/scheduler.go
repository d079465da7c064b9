package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/gpurun/gpurun/launcher/cluster"
	"github.com/gpurun/gpurun/launcher/errext"
)

// schedulerChecks: what placed gpurun here, and for how long.
var schedulerChecks = []check{
	{name: "place", look: place},
	{name: "time", look: timeLeft},
}

func place(_ context.Context, p *patient) Result {
	at, err := cluster.Detect(p.environ)
	if err == nil {
		err = at.Refuse()
	}
	if err != nil {
		return problem(errext.Hint(err), "%v", err)
	}
	if len(at.Warnings) > 0 {
		return warn("set GPURUN_NNODES", "%s", at.Warnings[0])
	}
	if at.Kind == cluster.Host {
		return found("a plain host: no Slurm, Kubernetes or torchrun variables")
	}
	return found("%s", at.Evidence)
}

// soon is how little time is worth a warning.
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

// timeOf says until when a job may run, and whether it is started again.
func timeOf(left time.Duration, end time.Time, again bool) Result {
	text := fmt.Sprintf("until %s, %s from now", end.Format("2006-01-02 15:04"), left.Round(time.Minute))
	switch {
	case left < soon:
		return warn("ask for more: --time (Slurm)", "%s", text)
	case !again:
		return warn("sbatch --requeue --signal=B:USR1@120: gpurun then goes on by itself", "%s, and not started again", text)
	}
	return found("%s, and started again", text)
}
