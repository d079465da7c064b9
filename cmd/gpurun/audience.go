package main

import (
	"context"
	"io"
	"path/filepath"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/launcher/show"

	"github.com/gpurun/gpurun/launcher/manual"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/launcher/notify"
	"github.com/gpurun/gpurun/launcher/ranks"
)

// An audience is everything that shows or reports a run: each event goes through show.
type audience struct {
	show    func(launcher.Event)
	said    io.Writer // gpurun's other messages
	secrets *mask.Masker
	people  *show.People
	monitor *show.Monitor
	others  *notify.Notifier
	meters  *notify.Exporter
	pipe    *notify.Pipeline
	events  *ranks.Messages // destination of the events as JSON; nil without --json
}

func newAudience(p *prepared, dir string, own job.Own, s stdio, pipe *notify.Pipeline) *audience {
	a := &audience{secrets: p.secrets(), pipe: pipe}
	a.monitor = show.OpenMonitor(show.Display{Stdout: s.out, Stderr: s.err, Silent: own.Quiet ||
		own.JSON, Dir: dir, Mask: a.secrets})
	a.said = a.monitor.Words
	pipe.Mask(a.secrets)
	a.people = &show.People{
		W: a.said, Quiet: own.Quiet, Dir: dir, Mask: a.secrets,
		Typed: p.WithoutNumber(p.begun.Args), Propose: p.propose(dir),
	}
	events := a.people.Show
	if own.JSON {
		a.events = ranks.NewMessages(s.json)
		events = (&show.JSON{W: a.events, Mask: a.secrets}).Show
	}
	events = show.ReportAtEnd(events, a.people, manual.Version())
	notified := notify.NotifiedRun{Dir: dir, Workdir: p.Job.Workdir, Version: manual.Version(), Mask: a.secrets,
		Page: a.page()}
	a.others, events = notify.New(p.Job.Notify, notified, a.monitor.Events(events))
	a.meters = notify.NewExporter(p.MetricsOf(filepath.Base(dir)), a.secrets)
	a.show = pipe.Events(a.meters.Events(events))
	return a
}

// recall replays the events of the run before this process.
func (a *audience) recall(events []launcher.Event) {
	a.people.Recall(events)
	a.pipe.Recall(events)
}

// begin starts the notifications. end waits for them, for a bounded time.
func (a *audience) begin(ctx context.Context, note func(text string)) (end func()) {
	return a.others.Begin(ctx, note)
}

func (a *audience) page() *show.Page { return show.NewPage(a.said, a.secrets) }

func (a *audience) close() {
	if a.events != nil {
		a.events.Close()
	}
	a.monitor.Close()
}
