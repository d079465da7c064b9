package main

import (
	"io"
	"path/filepath"

	"github.com/gpurun/gpurun/launcher"
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

// An audience is who is told how a run goes: each event goes through show, to all of them.
type audience struct {
	show    func(launcher.Event)
	said    io.Writer // for what gpurun says to people besides
	secrets *mask.Masker
	people  *console.People
	monitor *live.Monitor
	others  *notify.Notifier
	meters  *metrics.Metrics
	pipe    *pipeline.Pipeline
	events  *output.Words // of the events as JSON; nil without
}

func newAudience(p *prepared, dir string, own job.Own, s streams, pipe *pipeline.Pipeline) *audience {
	a := &audience{secrets: p.secrets(), pipe: pipe}
	a.monitor = live.Open(live.Options{Stdout: s.out, Stderr: s.err, Silent: own.Quiet || own.JSON, Dir: dir, Mask: a.secrets})
	a.said = pipe.Words(a.monitor.Words, a.secrets)
	a.people = console.NewPeople(a.said, dir, own.Quiet, p.propose(dir))
	a.people.Mask(a.secrets)
	a.people.Typed(p.WithoutNumber(p.begun.Args))
	a.people.Beside(a.monitor.Screen != nil && p.Job().Launch.Shown())
	show := a.people.Show
	if own.JSON {
		events := output.NewWords(s.json)
		lines := console.NewJSON(events)
		lines.Mask(a.secrets)
		a.events, show = events, lines.Show
	}
	show = report.AtEnd(show, report.End{
		Dir: dir, Version: manual.Version(), Mask: a.secrets, Page: a.page(),
		Propose: p.propose(dir), Typed: p.WithoutNumber(p.begun.Args), Told: a.people.Report,
	})
	notified := notify.Run{Dir: dir, Workdir: p.Job().Workdir, Version: manual.Version(), Mask: a.secrets, Page: a.page()}
	a.others, show = notify.Tell(p.Notify(), notified, a.monitor.Events(show))
	a.meters = metrics.New(metrics.Options(p.Metrics(filepath.Base(dir))), a.secrets)
	a.show = pipe.Events(a.meters.Events(show))
	return a
}

// recall tells those who need it what happened in the run before this process.
func (a *audience) recall(events []launcher.Event) {
	a.people.Recall(events)
	a.pipe.Recall(events)
}

func (a *audience) page() *console.Page { return console.NewPage(a.said, a.secrets) }

func (a *audience) close() {
	if a.events != nil {
		a.events.Close()
	}
	a.monitor.Close()
}
