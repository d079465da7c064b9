package strategy

import "fmt"

// A Notice is a signal by which somebody announced that the time here ends.
type Notice struct {
	// Signal is its name, "SIGUSR1", and Number its number; 0 for a deadline that gpurun
	// was given.
	Signal string `json:"signal"`
	Number int    `json:"number,omitempty"`
	// Stop says that the run was to stop before the end of the time.
	Stop bool `json:"stop,omitempty"`
	// Caught says that a rank has a handler for the signal, and was given it.
	Caught bool `json:"caught,omitempty"`
}

// CutShort says why an attempt was over before the job was, where a notice is the
// reason; empty where it is not. A rank that catches the notice saves its state, and
// often ends with 0 then: that is no training.
func (e *Evidence) CutShort() string {
	n := e.Notice
	if n == nil {
		return ""
	}
	if e.EndedWell() {
		return e.endedAfter(n)
	}
	if rank := e.EndedBy(n.Number); n.Number != 0 && rank >= 0 {
		return fmt.Sprintf("the notice %s ended rank %d, which has no handler for it", n.Signal, rank)
	}
	if n.Stop && e.StopSignal != 0 {
		return fmt.Sprintf("stopped after the notice %s, before the time here ends", n.Signal)
	}
	return ""
}

// EndedBy is the first rank that a signal ended which gpurun did not send; -1 for none.
func (e *Evidence) EndedBy(signal int) int {
	for _, i := range e.folded().exitFacts() {
		if x := e.folded().exitAt(i); !x.Stopped && signalOf(x) == signal {
			return e.Facts[i].Rank
		}
	}
	return -1
}

// endedAfter judges ranks that all ended with 0 after a notice. Where nobody knows
// which step is the last, they are taken for cut short only where the run was to stop:
// another start of a job that has trained costs little, and of one that has not,
// everything.
func (e *Evidence) endedAfter(n *Notice) string {
	if !n.Caught {
		return ""
	}
	last, total := e.lastStep()
	switch {
	case total > 0 && last < total:
		return fmt.Sprintf("the ranks ended at step %d of %d, after the notice %s", last, total, n.Signal)
	case total == 0 && n.Stop:
		return fmt.Sprintf("the ranks ended after the notice %s, which they caught; that they have trained to the end is not known", n.Signal)
	}
	return ""
}

// lastStep is the last step that a rank told of, and the number of steps that the job
// has; 0 where it is not known.
func (e *Evidence) lastStep() (last, total int) {
	for _, i := range e.folded().progress {
		p := e.Facts[i].Progress
		last, total = max(last, p.Last), max(total, p.Total)
	}
	return last, total
}

// cutShort ends the run with its state kept: it goes on when it is started again.
func cutShort(s *situation) Decision {
	return Decision{Outcome: Retry, Code: CodeRetry, Reason: fmt.Sprintf("attempt %d: %s; the run goes on when it is started again", s.last.N, s.last.CutShort)}
}

// Announced is the decision that a notice makes, a signal such as SIGUSR1 by which
// a scheduler announces the end of the time: no further attempt is started. What
// the last one was answered with is kept for the next start of the run.
func Announced(signal string, next Decision) Decision {
	d := Decision{Rule: "announced", Outcome: Retry, Code: CodeRetry, Reason: fmt.Sprintf("after the notice %s no attempt is started", signal)}
	if next.Reason != "" {
		d.Reason = fmt.Sprintf("%s, when this run is started again: %s", next.Reason, d.Reason)
	}
	return d
}
