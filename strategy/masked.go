package strategy

import (
	"slices"
	"time"

	"github.com/gpurun/gpurun/strategy/cause"
)

// A ProcessEnd is the end of a Python process below a shell: reported by the process, with a
// Stream, or seen by gpurun from outside, with Members. The exit code of a program above the
// process may hide its own: a shell that pipes its output into tee ends with the code of tee.
type ProcessEnd struct {
	PID    int       `json:"pid"`
	Stream string    `json:"stream,omitempty"` // of the finding that the process reported
	Began  time.Time `json:"began"`
	At     time.Time `json:"at"` // when it ended
	// Trained: a model was trained in it, or in a process that it started; for a failed process,
	// it was about to train one.
	Trained bool `json:"trained,omitempty"`
	// Failed is the cause by an uncaught exception; empty: none.
	Failed cause.Code `json:"failed,omitempty"`
	// Inner: a Python program of the job is above the process, and decides about the effect of
	// its end.
	Inner   bool   `json:"inner,omitempty"`
	Members []int  `json:"members,omitempty"` // the process and the Python processes that it started
	Exit    *Exit  `json:"exit,omitempty"`    // nil: unknown
	Runs    string `json:"runs,omitempty"`    // the script or module
	// Left: it still ran in the background after the end of the shell, and gpurun ended it.
	Left bool `json:"left,omitempty"`
}

// A program is a Python process below a shell, together with the Python processes that it
// started. Its end is the end of the outermost one.
type program struct {
	ProcessEnd
	streams       []string
	known, failed bool // its end is known; it ended badly
}

// programs lists the programs of a rank. An exit status from the kernel outranks the reports of
// the process and of the processes below it.
func (c *fold) programs(rank int) []*program {
	var all []*program
	of := map[int]*program{}
	var reports []*ProcessEnd
	for _, i := range c.processEnds {
		p := As[*ProcessEnd](c.facts[i])
		switch {
		case c.facts[i].Rank != rank:
		case len(p.Members) == 0:
			reports = append(reports, p)
		default:
			all = append(all, &program{ProcessEnd: *p, known: p.Exit != nil || p.Left, failed: p.Exit != nil &&
				failed(p.Exit) || p.Left})
			for _, pid := range p.Members {
				of[pid] = all[len(all)-1]
			}
		}
	}
	for _, p := range reports {
		whole := of[p.PID]
		switch {
		case whole != nil && (whole.Exit != nil || !p.Inner && whole.PID == p.PID):
			whole.join(p)
		case !p.Inner:
			all = append(all, &program{ProcessEnd: *p, streams: []string{p.Stream}, known: true, failed: p.Failed != ""})
		}
	}
	for id, i := range c.reported {
		if whole := of[id.pid]; id.rank == rank && whole != nil && As[*ProcessReport](c.facts[i]).Stepping {
			whole.Trained = true
		}
	}
	return all
}

// join adds the report of a process about its end.
func (p *program) join(report *ProcessEnd) {
	p.streams = append(p.streams, report.Stream)
	if report.Failed != "" && !p.Failed.OutOfMemory() {
		p.Failed = report.Failed
	}
	p.Trained = p.Trained || report.Trained
	if report.PID == p.PID && report.Began.After(p.Began) {
		p.Began = report.Began // it was a shell before
	}
	p.known = p.known || p.Exit == nil
	p.failed = p.failed || report.Failed != "" && (p.Exit == nil || report.PID == p.PID)
}

// endedWell reports whether the program is known to have ended well.
func (p *program) endedWell() bool { return p.known && !p.failed }

// replaces reports whether a program that ended well makes up for one that failed, because it is
// a later start of the same script.
func (p *program) replaces(other *program) bool {
	return p.endedWell() && p.Trained && p.follows(other) && (p.Runs == other.Runs || p.Runs == "" || other.Runs == "")
}

// endLag is the largest delay with which the end of a program is seen.
const endLag = 250 * time.Millisecond

// follows reports whether a program began after another one had ended.
func (p *program) follows(other *program) bool {
	return p.Began.After(other.Began) && p.Began.After(other.At.Add(-endLag))
}

// failures lists a rank's failed programs whose failure is the failure of the job: no later
// program made up for it. A program that was not about to train may have been a check before the
// training. It counts only if nothing trained and no later program ended well. A program left in
// the background counts if it may have been the training.
func (c *fold) failures(rank int) []*program {
	all := c.programs(rank)
	return slices.DeleteFunc(slices.Clone(all), func(p *program) bool {
		return !p.failed || slices.ContainsFunc(all, func(other *program) bool {
			switch {
			case p.Left:
				return other.endedWell() && other.Trained || !p.Trained
			case p.Trained || p.Failed.OutOfMemory():
				return other.replaces(p)
			}
			return other.Trained || other.endedWell() && other.follows(p) || p.Exit != nil && signalOf(p.Exit) == sigTERM
		})
	})
}

// exitAt returns the end of a rank by the fact of its exit. If a code of 0 hides that the
// training below it failed, it returns that failure.
func (c *fold) exitAt(i int) *Exit {
	e, rank := c.facts[i].Exit(), c.facts[i].Rank
	if e.Code != 0 || e.Stopped {
		return e
	}
	if failures := c.failures(rank); len(failures) > 0 {
		last := failures[len(failures)-1]
		if last.Exit != nil && failed(last.Exit) {
			return last.Exit
		}
		return &Exit{Code: pythonFails, PID: last.PID}
	}
	if e.Shell && c.textSaysFailed(rank) {
		return &Exit{Code: pythonFails, PID: e.PID}
	}
	return e
}

// masked reports whether a rank's exit code 0 hides that its training failed.
func (c *fold) masked(rank int) bool {
	i, ended := c.exits[rank]
	return ended && c.exitAt(i) != c.facts[i].Exit()
}

// textSaysFailed reports whether a shell's output shows that a program below it failed: by an
// uncaught exception, or by messages of Python or the shell that it could not run or was killed.
// It decides only if no program is known to have ended well since, and no step followed.
func (c *fold) textSaysFailed(rank int) bool {
	if c.trained(rank) {
		return false
	}
	all := c.programs(rank)
	return slices.ContainsFunc(c.findings, func(s found) bool {
		f := s.finding
		if s.rank != rank || ownWord(c.facts[s.fact].Source) || f.Weight.Over() || (!f.Top || f.Quoted) &&
			!f.Says(cause.SaysNotRun) {
			return false
		}
		at := c.facts[s.fact].Time
		if i, known := c.progress[rank]; known && c.facts[i].Time.After(at.Add(streamLag)) {
			return false
		}
		return !slices.ContainsFunc(all, func(p *program) bool { return p.endedWell() && p.At.After(at.Add(-streamLag)) })
	})
}

// Unproven reports whether a shell ended with 0 and no program below it is known to have
// completed a training: its output decides.
func (e *Evidence) Unproven() bool {
	c := e.folded()
	for rank, i := range c.exits {
		if exit := c.facts[i].Exit(); exit.Shell && exit.Code == 0 && !c.trained(rank) {
			return true
		}
	}
	return false
}

// trained reports whether a program of the rank is known to have completed a training.
func (c *fold) trained(rank int) bool {
	return slices.ContainsFunc(c.programs(rank), func(p *program) bool { return p.endedWell() && p.Trained })
}

// maskedText reports whether saved output ends in an uncaught exception though the given exit
// code is 0: the code may come from a program around the job.
func (c *fold) maskedText() bool {
	return slices.ContainsFunc(c.findings, func(s found) bool { return s.finding.Last && leaves(s.finding) })
}

// aside reports whether a finding is the report of a process whose end was not the end of the
// job.
func (c *fold) aside(s found) bool {
	return s.finding.Beside && !slices.ContainsFunc(c.failures(s.rank),
		func(p *program) bool { return slices.Contains(p.streams, s.finding.Stream) })
}
