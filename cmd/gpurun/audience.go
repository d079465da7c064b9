package main

import (
	"context"
	"io"
	"os"
	"path/filepath"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/cluster"
	"github.com/gpurun/gpurun/launcher/console"
	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/launcher/live"
	"github.com/gpurun/gpurun/launcher/manual"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/launcher/metrics"
	"github.com/gpurun/gpurun/launcher/notify"
	"github.com/gpurun/gpurun/launcher/output"
	"github.com/gpurun/gpurun/launcher/pipeline"
	"github.com/gpurun/gpurun/launcher/report"
)

// An audience is everything that shows or reports a run: each event goes through show.
type audience struct {
	show    func(launcher.Event)
	said    io.Writer // gpurun's other messages
	secrets *mask.Masker
	people  *console.People
	monitor *live.Monitor
	others  *notify.Notifier
	comment *notify.Comment // nil where nothing comments on the job
	meters  *metrics.Exporter
	pipe    *pipeline.Pipeline
	events  *output.Words // destination of the events as JSON; nil without --json
}

func newAudience(p *prepared, dir string, own job.Own, s stdio, pipe *pipeline.Pipeline) *audience {
	a := &audience{secrets: p.secrets(), pipe: pipe}
	a.monitor = live.Open(live.Display{Stdout: s.out, Stderr: s.err, Silent: own.Quiet || own.JSON, Dir: dir, Mask: a.secrets})
	a.said = pipe.Words(a.monitor.Words, a.secrets)
	a.people = &console.People{
		W: a.said, Quiet: own.Quiet, Dir: dir, Mask: a.secrets,
		Typed: p.WithoutNumber(p.begun.Args), Propose: p.propose(dir),
	}
	show := a.people.Show
	if own.JSON {
		a.events = output.NewWords(s.json)
		show = (&console.JSON{W: a.events, Mask: a.secrets}).Show
	}
	show = report.AtEnd(show, a.people, manual.Version())
	notified := notify.NotifiedRun{Dir: dir, Workdir: p.Job.Workdir, Version: manual.Version(), Mask: a.secrets, Page: a.page()}
	a.others, show = notify.New(p.Job.Notify, notified, a.monitor.Events(show))
	if at, err := cluster.Detect(os.Environ()); err == nil && at.Slurm() && p.Job.SlurmComment {
		a.comment, show = notify.NewComment(at.Comment, show)
	}
	a.meters = metrics.New(p.MetricsOf(filepath.Base(dir)), a.secrets)
	a.show = pipe.Events(a.meters.Events(show))
	return a
}

// recall replays the events of the run before this process.
func (a *audience) recall(events []launcher.Event) {
	a.people.Recall(events)
	a.pipe.Recall(events)
}

// begin starts what waits for others: notifications, and the comment on the job. end waits for them, for a
// bounded time.
func (a *audience) begin(ctx context.Context, events []launcher.Event, note func(text string)) (end func()) {
	notified, commented := a.others.Begin(ctx, note), a.comment.Begin(ctx, events, note)
	return func() {
		commented()
		notified()
	}
}

func (a *audience) page() *console.Page { return console.NewPage(a.said, a.secrets) }

func (a *audience) close() {
	if a.events != nil {
		a.events.Close()
	}
	a.monitor.Close()
}
