// Package pipeline tells the system that runs gpurun as a step of a pipeline how the step
// went: by a JUnit report, which most of them read, by GitHub's annotations and job summary,
// and by GitLab's sections.
//
// What comes from the job is told without its secrets (package mask), with control
// characters written out (package terminal), short, and so that none of these systems obeys
// anything in it.
package pipeline

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
	"github.com/gpurun/gpurun/launcher/private"
	"github.com/gpurun/gpurun/launcher/runstate"
	"github.com/gpurun/gpurun/strategy"
)

// Options are what a Pipeline is made of.
type Options struct {
	JUnit   string // the report's path, as given; empty for none
	Held    bool   // another gpurun runs in the run directory: the report is that one's
	Follows bool   // another node's gpurun tells how the run goes: this one tells nothing
	Job     string // the job's name
	Workdir string // where the job runs
	// Getenv asks gpurun's own environment, which says what system runs it.
	Getenv func(string) string
	// Stdout is where GitHub looks for annotations; nil: it carries something else.
	Stdout, Stderr io.Writer
}

// A Pipeline hears how a run goes, and tells it where that is wanted. Its methods are called
// from one goroutine at a time.
type Pipeline struct {
	opts   Options
	course course
	before []launcher.Event // of an earlier gpurun
	github *github          // nil elsewhere
	gitlab *gitlab          // nil elsewhere
}

// Open finds out what system runs gpurun, and writes a JUnit report that says that the run
// has not ended: a step that is killed leaves that one, and not the one of the night before.
// The error has exit code 2: the report cannot be written.
func Open(o Options) (*Pipeline, error) {
	if o.Follows {
		o = Options{Job: o.Job, Workdir: o.Workdir, Getenv: func(string) string { return "" }, Stderr: o.Stderr}
	}
	host, _ := os.Hostname() // empty where nobody knows
	p := &Pipeline{opts: o, course: course{job: o.Job, host: host, opened: time.Now()}}
	if onGitHub(o.Getenv) {
		p.github = &github{stdout: o.Stdout, summary: o.Getenv("GITHUB_STEP_SUMMARY"), workspace: o.Getenv("GITHUB_WORKSPACE"), workdir: o.Workdir}
	}
	if o.Getenv("GITLAB_CI") == "true" {
		p.gitlab = &gitlab{}
	}
	if o.JUnit == "" {
		return p, nil
	}
	path, err := filepath.Abs(o.JUnit)
	if err == nil {
		p.opts.JUnit = path
	}
	private.SweepFolder(filepath.Dir(p.opts.JUnit), time.Minute) // of one that was killed
	if err == nil && !o.Held {
		err = p.write(p.course.unfinished("gpurun has not ended: it is at work, or was killed"))
	}
	if err != nil {
		return nil, errext.WithCode(errext.Errorf("name a file in a folder that exists and that you can write to", "--junit %s: %w", o.JUnit, err), strategy.CodeUsage)
	}
	return p, nil
}

// Words is w for what gpurun says to people of the run. m knows the job's secrets. It comes
// before the first event.
func (p *Pipeline) Words(w io.Writer, m *mask.Masker) io.Writer {
	p.course.mask = m
	if p.gitlab != nil {
		p.gitlab.words = w
	}
	return Words(w, p.opts.Getenv)
}

// Recall takes in what an earlier gpurun did in the same run directory. It counts once this
// one has something to tell of the run: it may be that of another job.
func (p *Pipeline) Recall(events []launcher.Event) { p.before = events }

// Events takes in events, and hands them on to show.
func (p *Pipeline) Events(show func(launcher.Event)) func(launcher.Event) {
	return func(e launcher.Event) {
		if p.before != nil {
			p.course.state = *runstate.Of(p.before)
		}
		p.before, p.opts.Held = nil, false
		p.course.state.Add(e)
		p.gitlab.take(e)
		show(e)
		if _, decided := e.(launcher.Decided); decided && p.opts.JUnit != "" {
			// Where it cannot be written, the last one says so.
			_ = p.write(p.course.unfinished("gpurun has not ended: it is at work, or was killed"))
		}
	}
}

// End tells how the run ended: by its verdict, or by err, which ended gpurun without one or
// while it was written. One that could not have the run directory leaves the report to the
// gpurun that has it. What cannot be told is a warning, and does not change how gpurun ends.
func (p *Pipeline) End(err error) {
	p.gitlab.end()
	end := p.course.end(err)
	if p.opts.JUnit != "" && !p.opts.Held && !errors.Is(err, journal.ErrLocked) {
		p.warn("--junit", p.write(end))
	}
	if p.github != nil {
		p.github.annotate(&p.course, end)
		text := markdown(&p.course, end)
		p.warn("GITHUB_STEP_SUMMARY", private.InTime(func() error { return p.github.summarize(text) }))
	}
}

func (p *Pipeline) warn(what string, err error) {
	if err != nil {
		fmt.Fprintf(p.opts.Stderr, "gpurun: warning: %s\n", p.course.mask.Line(fmt.Sprintf("%s: %v", what, err), longMessage))
	}
}
