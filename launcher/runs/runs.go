// Package runs finds the runs below a folder, and says of each what people ask first:
// how it stands, how far it came, and with which plan.
//
// A run directory is .gpurun/<job>/<run>/, or <run>/ in the folder of --log-dir. What is
// read of one is bounded, whatever lies there, and no link below .gpurun is followed.
package runs

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/runstate"
	"github.com/gpurun/gpurun/strategy"
)

// An Outcome is how a run stands: a strategy.Outcome, or one of these.
type Outcome string

// The outcomes of a run that has no verdict.
const (
	Running Outcome = "running"
	// CutOff is a run that ended together with its gpurun: nothing runs, nothing was decided.
	CutOff Outcome = "cut off"
	// Broken is a run directory that cannot be read.
	Broken Outcome = "broken"
)

// Done reports whether nothing is left to run.
func (o Outcome) Done() bool { return strategy.Outcome(o).Final() }

// A Run is one run directory, as it stood when it was looked at. Text in it may come from
// a job.
type Run struct {
	Path string `json:"path"` // absolute
	Job  string `json:"job"`
	Name string `json:"run"`
	// Script is the one that the job has its name from, as it was typed; empty where there is none.
	Script string `json:"script,omitempty"`
	// Began is when the run's first gpurun did, Since when its latest one did, which differ
	// where it was started again. Ended is when it last wrote something; zero while it runs.
	Began time.Time `json:"began,omitzero"`
	Since time.Time `json:"since,omitzero"`
	Ended time.Time `json:"ended,omitzero"`

	Outcome Outcome `json:"outcome"`
	// Code is the exit code and Reason the sentence of a run that has a verdict.
	Code   int    `json:"code"`
	Reason string `json:"reason,omitempty"`
	// Attempts are those that were started, the running one among them.
	Attempts int `json:"attempts"`
	// Changed is how the newest attempt's plan differs from that of attempt 0, and Plan the
	// same in words: "micro batch 8→4"; empty where it does not.
	Changed strategy.Changes `json:"changed,omitempty"`
	Plan    string           `json:"plan,omitempty"`
	// Host is where the run's latest gpurun is or was, and PID its process while it is.
	Host   string `json:"host,omitempty"`
	PID    int    `json:"pid,omitempty"`
	Locked bool   `json:"locked"` // a gpurun is at work in it
	// Bytes are what the directory takes of the disk, once Measure has looked; AtLeast says
	// that there was too much to look at.
	Bytes   int64 `json:"bytes,omitempty"`
	AtLeast bool  `json:"at_least,omitempty"`
	// Broken says why the directory cannot be read, empty where it can.
	Broken string `json:"broken,omitempty"`
}

// Resumable reports whether starting the run again would go on with it.
func (r Run) Resumable() bool {
	return !r.Locked && (r.Outcome == CutOff || r.Outcome == Outcome(strategy.Retry) || r.Outcome == Outcome(strategy.Stopped))
}

// Look says how the run in a directory stands, whose path is absolute. A directory that
// cannot be read is told in the answer.
func Look(path string) Run {
	r := Run{Path: path, Name: filepath.Base(path)}
	r.Job = r.folder()
	r.Host, r.PID, r.Locked = journal.Holder(path)
	if !r.Locked {
		r.PID = 0
	}
	events, written, err := journal.Outline(path)
	if err != nil {
		r.Broken = err.Error()
	}
	run := runstate.Of(events)
	r.fill(run)
	end := run.End()
	if end == nil && !r.Locked {
		end = draft(path, run)
	}
	switch {
	case r.Locked:
		r.Outcome = Running
		return r
	case r.Broken != "":
		r.Outcome = Broken
	case end != nil:
		r.Outcome = Outcome(end.Outcome)
	default:
		r.Outcome = CutOff
	}
	if r.Ended = written; end != nil {
		r.Code, r.Reason = end.Code, end.Reason
	}
	return r
}

// fill puts into r what the outline of its journal says, but how it ended.
func (r *Run) fill(run *runstate.Run) {
	r.Job = cmp.Or(run.Began.Name, r.Job)
	r.Began, r.Since = run.First.At, run.Began.At
	last := run.Launched()
	if last == nil {
		return
	}
	r.Attempts, r.Script = last.N+1, scriptOf(last.Command.Argv, r.Job)
	first := run.First.Plan
	if run.Attempts[0].N == 0 {
		first = run.Attempts[0].Plan
	}
	if r.Changed = first.Changed(last.Plan); len(r.Changed) > 0 {
		r.Plan = r.Changed.String()
	}
}

// scriptOf is the word of a command that a job has its name from.
func scriptOf(argv []string, job string) string {
	named := func(word string) bool {
		base := filepath.Base(word)
		return job != "" && strings.TrimSuffix(base, filepath.Ext(base)) == job
	}
	if at := slices.IndexFunc(argv, named); at >= 0 {
		return argv[at]
	}
	return ""
}

// draft is the verdict of a run that was killed while it ended; nil where it is of an
// earlier gpurun of the run, or there is none.
func draft(path string, run *runstate.Run) *launcher.Verdict {
	since := run.Began.At
	if last := run.Launched(); last != nil && last.At.After(since) {
		since = last.At
	}
	if v, written, err := journal.ReadVerdict(path); err == nil && !written.Before(since) && v.Outcome.Valid() {
		return &v
	}
	return nil
}
