// This file and find.go find the runs below a folder, with the state, the progress and the plan of
// each.
//
// A run directory is .gpurun/<job>/<run>/, or <run>/ in the folder of --log-dir. Reading one is
// bounded, whatever it holds, and follows no links below .gpurun.

package show

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/system"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// A RunState is a strategy.Outcome, or one of these.
type RunState string

// The states of a run that has no verdict.
const (
	Running RunState = "running"
	CutOff  RunState = "cut off" // its gpurun was killed: nothing runs, nothing was decided
	Broken  RunState = "broken"  // the run directory cannot be read
)

// Done reports whether nothing is left to run.
func (s RunState) Done() bool { return strategy.Outcome(s).Final() }

// An Entry is one run directory at the time when it was read. Its texts may come from a job.
type Entry struct {
	Path string `json:"path"` // absolute
	Job  string `json:"job"`
	Name string `json:"run"`
	// Script is the script that the job is named after, as it was typed; empty for none.
	Script string `json:"script,omitempty"`
	// Began is when the run's first gpurun began, Since when its latest one did. Ended is when
	// it last wrote something; zero while it runs.
	Began time.Time `json:"began,omitzero"`
	Since time.Time `json:"since,omitzero"`
	Ended time.Time `json:"ended,omitzero"`

	Outcome RunState `json:"outcome"`
	// Code is the exit code and Reason the sentence of a run that has a verdict.
	Code   int    `json:"code"`
	Reason string `json:"reason,omitempty"`
	// Attempts is how many were started.
	Attempts int `json:"attempts"`
	// User is who owns the run directory. Model is that of the verdict; empty where it is not known.
	User  string `json:"user,omitempty"`
	Model string `json:"model,omitempty"`
	// Causes counts the attempts that failed by their causes; InPlace counts the steps
	// that were done again in place.
	Causes  map[cause.Code]int `json:"causes,omitempty"`
	InPlace int                `json:"in_place,omitempty"`
	// Armed: its newest attempt began with remedies in place that an earlier run needed.
	Armed bool `json:"-"`
	// GPUTime is what the run used, lost and rescued until its latest decision; nil where it is not known.
	GPUTime *strategy.GPUTime `json:"gpu_time,omitempty"`
	// Changed is how the newest attempt's plan differs from that of the job as written, and Plan its
	// text: "micro batch 8→4"; empty where it does not.
	Changed strategy.Changes `json:"changed,omitempty"`
	Plan    string           `json:"plan,omitempty"`
	// Host is where the run's latest gpurun is or was, and PID its process while it is.
	Host   string `json:"host,omitempty"`
	PID    int    `json:"pid,omitempty"`
	Locked bool   `json:"locked"` // a gpurun is at work in it
	// Paused says that this gpurun, on this host, is stopped, as by Ctrl-Z; its ranks are, too.
	Paused bool `json:"paused,omitempty"`
	// Bytes is the disk space of the directory, after Measure; AtLeast says that the directory
	// was too large to measure in full.
	Bytes   int64 `json:"bytes,omitempty"`
	AtLeast bool  `json:"at_least,omitempty"`
	// Scheduler is the name that the scheduler of the latest gpurun has for the job; empty for none.
	Scheduler string `json:"-"`
	// End is how the run ended, also while its gpurun is still at work; nil where it has not ended.
	End *launcher.Verdict `json:"-"`
	// Broken says why the directory cannot be read, empty where it can.
	Broken string `json:"broken,omitempty"`
}

// LookAtRun reads the run in a directory, whose path is absolute. Broken says why it cannot be
// read.
func LookAtRun(path string) Entry {
	r := Entry{Path: path, Name: filepath.Base(path)}
	r.Job, r.User = r.folder(), ownerOf(path)
	r.Host, r.PID, r.Locked = journal.Holder(path)
	if !r.Locked {
		r.PID = 0
	}
	events, written, err := journal.Outline(path)
	if err != nil {
		r.Broken = err.Error()
	}
	run := journal.RunOf(events)
	r.fill(run)
	r.count(run)
	if r.End = run.End(); r.End == nil && !r.Locked {
		r.End = draft(path, run)
	}
	if r.Locked {
		r.Outcome, r.Paused = Running, r.stopped()
		return r
	}
	r.Outcome, r.Ended = CutOff, written
	if r.End != nil {
		r.Outcome, r.Code, r.Reason = RunState(r.End.Outcome), r.End.Code, r.End.Reason
	}
	if r.Broken != "" {
		r.Outcome = Broken
	}
	return r
}

// ownerOf is the user who owns a folder; empty where it cannot be read.
func ownerOf(path string) string {
	if info, err := os.Lstat(path); err == nil {
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			return system.UserName(stat.Uid)
		}
	}
	return ""
}

// stopped reports whether the run's gpurun is stopped. Of one on another host that is not known.
func (r Entry) stopped() bool {
	here, err := os.Hostname()
	if err != nil || here != r.Host || r.PID <= 0 {
		return false
	}
	stat, err := system.ReadStat(r.PID)
	return err == nil && stat.Field(3) == "T"
}

// State is the outcome for people: a running run may be paused.
func (r Entry) State() string {
	if r.Paused {
		return "paused"
	}
	return string(r.Outcome)
}

// fill adds what the journal says, except how the run ended.
func (r *Entry) fill(run *journal.Run) {
	r.Job = cmp.Or(run.Began.Name, r.Job)
	r.Began, r.Since, r.Scheduler = run.First.At, run.Began.At, run.Began.Scheduler
	last := run.Launched()
	if last == nil {
		return
	}
	r.Attempts, r.Script = last.N+1, scriptOf(last.Command.Argv, r.Job)
	r.Armed = last.InPlace.ArmedWords() != ""
	first := run.First.Plan
	if run.Attempts[0].N == 0 && run.First.Job.Recalled == nil { // a remembered plan is a change itself
		first = run.Attempts[0].Plan
	}
	if r.Changed = first.Changed(last.Plan); len(r.Changed) > 0 {
		r.Plan = r.Changed.String()
	}
}

// count adds what the attempts cost.
func (r *Entry) count(run *journal.Run) {
	r.Model, r.GPUTime, r.Causes = run.Model, run.GPUTime, map[cause.Code]int{}
	add := func(c cause.Code, again []strategy.InPlace) {
		if c != "" && c != cause.None {
			r.Causes[c]++
		}
		steps, _ := strategy.InPlaceCost(again)
		r.InPlace += steps
	}
	if run.Verdict != nil {
		for _, a := range run.Verdict.Attempts {
			add(a.Cause, a.InPlace)
		}
		return
	}
	for _, a := range run.Attempts {
		add(a.Diagnosis.Cause, a.Again)
	}
}

// scriptOf is the word of a command that a job is named after.
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

// draft is the verdict of a run that was killed while it ended; nil for none, or for that of
// an earlier gpurun of the run.
func draft(path string, run *journal.Run) *launcher.Verdict {
	since := run.Began.At
	if last := run.Launched(); last != nil && last.At.After(since) {
		since = last.At
	}
	if v, written, err := journal.ReadVerdict(path); err == nil && !written.Before(since) && v.Outcome.Valid() {
		return &v
	}
	return nil
}
