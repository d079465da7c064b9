package strategy

import (
	"slices"
	"time"

	"github.com/gpurun/gpurun/strategy/cause"
)

// A ProcessEnd is how a Python process below a shell ended: by its own word, which has a
// Stream, or as gpurun saw it from outside, which has Members. The exit code of a program
// above it may hide its own: a shell that pipes its output into tee ends with the code of
// tee.
type ProcessEnd struct {
	PID int `json:"pid"`
	// Stream is the one of the finding that the process reported.
	Stream string `json:"stream,omitempty"`
	// Began and At are when the process began and when it ended.
	Began time.Time `json:"began"`
	At    time.Time `json:"at"`
	// Trained says that a model was trained in it, or in a process that it started; of one
	// that failed, that it was about to.
	Trained bool `json:"trained,omitempty"`
	// Failed is the cause by the exception that nobody caught, empty for none.
	Failed cause.Code `json:"failed,omitempty"`
	// Inner says that a Python program of the job's own stands above the process, and
	// decides what its end means.
	Inner bool `json:"inner,omitempty"`
	// Members are the Python processes that the process started, itself included.
	Members []int `json:"members,omitempty"`
	// Exit is how the process ended where the kernel says it, nil for unknown.
	Exit *Exit `json:"exit,omitempty"`
	// Runs is the script or module that it ran.
	Runs string `json:"runs,omitempty"`
	// Left says that it still ran in the background when the shell had ended, and that
	// gpurun ended it.
	Left bool `json:"left,omitempty"`
}

// A program is a Python process below a shell together with the Python processes that it
// started. Its end is that of the outermost one.
type program struct {
	ProcessEnd
	streams []string
	// known says that its end is known, and failed that it was a bad one.
	known, failed bool
}

// programs are those of a rank. What the kernel says of an end outranks what the process
// and those below it say.
func (c *fold) programs(rank int) []*program {
	var all []*program
	of := map[int]*program{}
	for _, i := range c.processEnds {
		p := c.facts[i].ProcessEnd
		if c.facts[i].Rank != rank || len(p.Members) == 0 {
			continue
		}
		all = append(all, &program{ProcessEnd: *p, known: p.Exit != nil || p.Left, failed: p.Exit != nil && failed(p.Exit) || p.Left})
		for _, pid := range p.Members {
			of[pid] = all[len(all)-1]
		}
	}
	for _, i := range c.processEnds {
		p := c.facts[i].ProcessEnd
		if c.facts[i].Rank != rank || len(p.Members) > 0 {
			continue
		}
		whole := of[p.PID]
		switch {
		case whole != nil && (whole.Exit != nil || !p.Inner && whole.PID == p.PID):
			whole.join(p)
		case !p.Inner:
			all = append(all, &program{ProcessEnd: *p, streams: []string{p.Stream}, known: true, failed: p.Failed != ""})
		}
	}
	for v, i := range c.said {
		if whole := of[v.pid]; v.rank == rank && whole != nil && c.facts[i].Said.Stepping {
			whole.Trained = true
		}
	}
	return all
}

// join adds what a process of the program said of its own end.
func (p *program) join(word *ProcessEnd) {
	p.streams = append(p.streams, word.Stream)
	if word.Failed != "" && !p.Failed.OutOfMemory() {
		p.Failed = word.Failed
	}
	p.Trained = p.Trained || word.Trained
	if word.PID == p.PID && word.Began.After(p.Began) {
		p.Began = word.Began // it had been a shell before
	}
	if p.Exit == nil {
		p.known = true
	}
	p.failed = p.failed || word.Failed != "" && (p.Exit == nil || word.PID == p.PID)
}

// meantToTrain reports whether the program trained, or ran out of memory on the way there.
func (p *program) meantToTrain() bool { return p.Trained || p.Failed.OutOfMemory() }

// replaces reports whether a program that ended well makes up for one that had failed: it
// is a later start of the same script.
func (p *program) replaces(other *program) bool {
	return p.known && !p.failed && p.Trained && p.follows(other) && (p.Runs == other.Runs || p.Runs == "" || other.Runs == "")
}

// endLag is how much later than it came the end of a program may be seen.
const endLag = 250 * time.Millisecond

// follows reports whether a program began when another one had ended.
func (p *program) follows(other *program) bool {
	return p.Began.After(other.Began) && p.Began.After(other.At.Add(-endLag))
}

// failures are a rank's programs that failed, and with them the job: none that was started
// later made up for it. One that was not about to train counts only where nothing trained
// and no later one ended well: it may have been a check before the training. One that was
// left in the background counts where it may have been the training.
func (c *fold) failures(rank int) []*program {
	all := c.programs(rank)
	return slices.DeleteFunc(slices.Clone(all), func(p *program) bool {
		return !p.failed || slices.ContainsFunc(all, func(other *program) bool {
			well := other.known && !other.failed
			switch {
			case p.Left:
				return well && other.Trained || !p.Trained
			case p.meantToTrain():
				return other.replaces(p)
			}
			return other.Trained || well && other.follows(p) || p.Exit != nil && signalOf(p.Exit) == sigTERM
		})
	})
}

// exitAt is how a rank ended by the fact of its exit. Where its code of 0 hides that the
// training below it failed, it is how that ended.
func (c *fold) exitAt(i int) *Exit {
	e := c.facts[i].Exit
	if e.Code != 0 || e.Stopped {
		return e
	}
	if hidden := c.hidden(c.facts[i].Rank, e); hidden != nil {
		return hidden
	}
	return e
}

// hidden is the failed end behind a rank's exit code of 0, nil for none.
func (c *fold) hidden(rank int, e *Exit) *Exit {
	failures := c.failures(rank)
	if n := len(failures); n > 0 {
		if last := failures[n-1]; last.Exit != nil && failed(last.Exit) {
			return last.Exit
		}
		return &Exit{Code: pythonFails, PID: failures[n-1].PID}
	}
	if e.Shell && c.textSaysFailed(rank) {
		return &Exit{Code: pythonFails, PID: e.PID}
	}
	return nil
}

// masked reports whether a rank's exit code 0 hides that its training failed.
func (c *fold) masked(rank int) bool {
	i, ended := c.exits[rank]
	return ended && c.exitAt(i) != c.facts[i].Exit
}

// textSaysFailed reports whether a shell's output says that what ran below it failed: by
// an exception that left a program, or words of Python or the shell that it could not run
// or was killed. Such words decide only where no program is known to have ended well since,
// and no step followed.
func (c *fold) textSaysFailed(rank int) bool {
	if c.trained(rank) {
		return false
	}
	all := c.programs(rank)
	return slices.ContainsFunc(c.findings, func(s found) bool {
		f := s.finding
		if s.rank != rank || ownWord(c.facts[s.fact].Source) || f.Weight.Over() || (!f.Top || f.Quoted) && !f.Says(cause.SaysNotRun) {
			return false
		}
		at := c.facts[s.fact].Time
		if i, known := c.progress[rank]; known && c.facts[i].Time.After(at.Add(streamLag)) {
			return false
		}
		return !slices.ContainsFunc(all, func(p *program) bool { return p.known && !p.failed && p.At.After(at.Add(-streamLag)) })
	})
}

// Unproven reports whether a shell ended with 0, and nothing below it is known to have
// trained to a good end: its output decides.
func (e *Evidence) Unproven() bool {
	c := e.folded()
	for rank, i := range c.exits {
		if exit := c.facts[i].Exit; exit.Shell && exit.Code == 0 && !c.trained(rank) {
			return true
		}
	}
	return false
}

// trained reports whether a program of the rank is known to have trained to a good end.
func (c *fold) trained(rank int) bool {
	return slices.ContainsFunc(c.programs(rank), func(p *program) bool { return p.known && !p.failed && p.Trained })
}

// maskedText reports whether saved output ends in an exception that nobody caught, though
// the exit code that somebody gave is 0: it may be that of a program around the job.
func (c *fold) maskedText() bool {
	return slices.ContainsFunc(c.findings, func(s found) bool { return s.finding.Last && leaves(s.finding) })
}

// aside reports whether a finding is the word of a process whose end was not that of the
// job.
func (c *fold) aside(s found) bool {
	return s.finding.Beside && !slices.ContainsFunc(c.failures(s.rank), func(p *program) bool { return slices.Contains(p.streams, s.finding.Stream) })
}
