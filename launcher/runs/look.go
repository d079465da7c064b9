package runs

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/runstate"
)

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
