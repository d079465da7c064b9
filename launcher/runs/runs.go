// Package runs finds the runs below a folder, and says of each what people ask first:
// how it stands, how far it came, and with which plan.
//
// A run directory is .gpurun/<job>/<run>/, or <run>/ in the folder of --log-dir. What is
// read of one is bounded, whatever lies there, and no link below .gpurun is followed.
package runs

import (
	"time"

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
