package runs

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/strategy"
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
	var s standing
	for _, e := range events {
		s.take(e)
	}
	if s.ended == nil && !r.Locked {
		s.draft(path)
	}
	s.tell(&r)
	switch {
	case r.Locked:
		r.Outcome, r.Reason, r.Code = Running, "", 0
	case r.Broken != "":
		r.Outcome, r.Ended = Broken, written
	default:
		r.Ended = written
	}
	return r
}

// A standing is what the outline of a journal says of its run.
type standing struct {
	job, script  string
	began, since time.Time
	first, last  strategy.Plan // of the attempts
	attempts     int
	started      time.Time // the newest attempt, or its gpurun
	ended        *launcher.Verdict
}

func (s *standing) take(e launcher.Event) {
	switch e := e.(type) {
	case launcher.Began:
		if s.job = e.Name; s.began.IsZero() {
			s.began, s.first, s.last = e.At, e.Plan, e.Plan
		}
		s.since, s.started, s.ended = e.At, e.At, nil
	case launcher.Started:
		if e.N == 0 {
			s.first = e.Plan
		}
		s.last, s.attempts, s.started, s.ended = e.Plan, e.N+1, e.At, nil
		s.script = scriptOf(e.Command.Argv, s.job)
	case launcher.Decided:
		if d := e.Decision; !d.Relaunch {
			s.ended = &launcher.Verdict{Outcome: d.Outcome, Code: d.Code, Reason: d.Reason}
		}
	case launcher.Finished:
		s.ended = &e.Verdict
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

// draft takes the verdict of a run that was killed while it ended, unless it is of an
// earlier gpurun of the run.
func (s *standing) draft(path string) {
	if v, written, err := journal.ReadVerdict(path); err == nil && !written.Before(s.started) && v.Outcome.Valid() {
		s.ended = &v
	}
}

// tell puts it into a run.
func (s *standing) tell(r *Run) {
	if s.job != "" {
		r.Job = s.job
	}
	r.Script, r.Began, r.Since, r.Attempts, r.Outcome = s.script, s.began, s.since, s.attempts, CutOff
	if r.Changed = s.first.Changed(s.last); len(r.Changed) > 0 {
		r.Plan = r.Changed.String()
	}
	if s.ended != nil {
		r.Outcome, r.Code, r.Reason = Outcome(s.ended.Outcome), s.ended.Code, s.ended.Reason
	}
}
