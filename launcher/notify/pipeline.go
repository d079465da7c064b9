// These files report the result of a run to the system that runs gpurun as a step of a
// pipeline: as a JUnit report, which most of them read.
//
//	pipeline.go  one run: events in, reports out
//	outcome.go   how attempts and the run ended, as text that is safe to show
//	junit.go     the JUnit report
//
// Text from the job is reported without its secrets (package mask), with control characters
// escaped , short, and so that none of these systems interprets it.

package notify

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/launcher/system"
	"github.com/gpurun/gpurun/strategy"
)

// A PipelineSetup has what a Pipeline reports, and where.
type PipelineSetup struct {
	JUnit   string // the report's path, as given; empty for none
	Held    bool   // another gpurun holds the run directory, and writes the report
	Follows bool   // the gpurun of another node reports: this one reports nothing
	Job     string // the job's name
	Stderr  io.Writer
}

// A Pipeline reports one run. Its methods are called from one goroutine at a time.
type Pipeline struct {
	setup   PipelineSetup
	history history
	before  []launcher.Event // of an earlier gpurun
}

const notEnded = "gpurun has not ended: it is at work, or was killed"

// OpenPipeline writes a JUnit report that the run has not ended, so that a step that is killed does not leave the
// report of an earlier run. The error has exit code 2: the report cannot be written.
func OpenPipeline(s PipelineSetup) (*Pipeline, error) {
	if s.Follows {
		s = PipelineSetup{Job: s.Job, Stderr: s.Stderr}
	}
	host, _ := os.Hostname() // empty where it is not known
	p := &Pipeline{setup: s, history: history{job: s.Job, host: host, opened: time.Now()}}
	if p.history.state.Most = journal.Recent; s.JUnit == "" {
		return p, nil
	}
	p.history.state.Most = journal.First + mostCases
	path, err := filepath.Abs(s.JUnit)
	if err == nil {
		p.setup.JUnit = path
	}
	system.SweepFolder(filepath.Dir(p.setup.JUnit), time.Minute) // of a gpurun that was killed
	if err == nil && !s.Held {
		err = p.write(p.history.unfinished(notEnded))
	}
	if err != nil {
		return nil, errext.WithCode(errext.Errorf("name a file in a folder that exists and that you can write to",
			"--junit %s: %w", s.JUnit, err), strategy.CodeUsage)
	}
	return p, nil
}

// Mask removes the job's secrets from the report. It is called before the first event.
func (p *Pipeline) Mask(m *mask.Masker) { p.history.mask = m }

// Recall keeps the events of an earlier gpurun in the same run directory. They count only from
// the first event of this gpurun: the run directory may belong to another job.
func (p *Pipeline) Recall(events []launcher.Event) { p.before = events }

// Events returns a function that reports an event to the pipeline, and then calls show.
func (p *Pipeline) Events(show func(launcher.Event)) func(launcher.Event) {
	return func(e launcher.Event) {
		for _, earlier := range p.before {
			p.history.state.Add(earlier)
		}
		p.before, p.setup.Held = nil, false
		p.history.state.Add(e)
		show(e)
		if _, decided := e.(launcher.Decided); decided && p.setup.JUnit != "" {
			_ = p.write(p.history.unfinished(notEnded)) // the last report shows the error
		}
	}
}

// End reports how the run ended: by its verdict, or by err, which ended gpurun without one or
// while it was written. A gpurun that could not lock the run directory leaves the report to
// the one that holds it. What cannot be reported is a warning, and does not change the exit
// code.
func (p *Pipeline) End(err error) {
	end := p.history.end(err)
	if p.setup.JUnit == "" || p.setup.Held || errors.Is(err, journal.ErrLocked) {
		return
	}
	if err := p.write(end); err != nil {
		warning := p.history.mask.Line(fmt.Sprintf("--junit: %v", err), longMessage)
		fmt.Fprintf(p.setup.Stderr, "gpurun: warning: %s\n", warning)
	}
}
