package doctor

import (
	"cmp"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher/cluster"
	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/python"
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
	return found("%s: recipe %s, %s (%s)", p.job.Name, p.prepared.RecipeName(), counted(p.prepared.Ranks, "rank"), p.prepared.WhyRanks)
}

// notifications checks that the job's notifications have a receiver. It sends none.
func notifications(_ context.Context, p *patient) Result {
	switch n := p.job.Notify; {
	case n.Missing != "":
		return warn("set the variable, or write the file, or remove [notify]", "no notification is sent: %s", n.Missing)
	case len(n.Command) > 0:
		program, err := python.Finder{Dir: p.dir, Env: p.env}.InPath(n.Command[0])
		if err != nil {
			return warn("name a program that is there: notify.command", "no notification is sent: %v", err)
		}
		return found("by %s", program)
	case n.URL == "":
		return skip("the job's [notify] names no receiver")
	}
	return found("the receiver's URL is set; gpurun has posted nothing")
}

// metricsWritable checks that the metrics of the job's runs can be written and served.
func metricsWritable(_ context.Context, p *patient) Result {
	switch {
	case p.job.Metrics.TextFile == "" && p.job.Metrics.Listen == "":
		return skip("the job's [metrics] name no place")
	case p.prepared == nil:
		return skip("the job cannot be prepared")
	}
	m := p.prepared.MetricsOf("run")
	if m.TextFile != "" {
		folder := filepath.Dir(m.TextFile)
		if info, err := os.Stat(folder); err != nil || !info.IsDir() {
			return warn("make the folder, or name another one: metrics.textfile", "no metrics are written: %s is not a folder", folder)
		}
		if err := tryWriting(folder); err != nil {
			return warn("let the job's user write there, or name another folder: metrics.textfile", "no metrics are written: %s: %v", folder, err)
		}
	}
	if m.Listen != "" {
		l, err := net.Listen("tcp", m.Listen)
		if err != nil {
			return warn("take another port, or 0 for any: metrics.listen", "no metrics are served: %v", err)
		}
		l.Close()
	}
	return found("the file can be written, the port is free")
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
		return warn("sbatch --requeue --signal=B:USR1@120: gpurun then continues by itself", "%s, and not started again", text)
	}
	return found("%s, and started again", text)
}
