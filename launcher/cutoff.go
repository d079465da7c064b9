package launcher

import "github.com/gpurun/gpurun/strategy"

// unfinished is an attempt of a journal that has not ended, the climb for which its ranks
// were to be stopped, and how they ended; nil where nothing says so.
type unfinished struct {
	started *Started
	climbed *Climbed
	exited  *Exited
}

// cutOff takes in an attempt that ended together with gpurun, if there is one. One that
// was being stopped for a faster plan is part of the history, and that plan comes next.
func (s *State) cutOff(u unfinished) {
	if u.started == nil {
		return
	}
	if u.exited != nil {
		e := u.exited.Evidence
		s.End(e, strategy.Diagnose(e))
		s.Next.N = e.Attempt + 1
		return
	}
	s.begun = true
	if u.climbed == nil {
		s.Next.ran, s.Next.began = true, u.started.At
		s.Verdict.cutOff(u.started)
		return
	}
	s.goUp(*u.climbed)
	s.Verdict.record(s.Job, s.History, ending{}, u.climbed.Decision)
}

// goUp takes in an attempt that was stopped for a faster plan, and whose end nobody saw.
func (s *State) goUp(c Climbed) {
	a := c.Attempt
	a.Climb, a.Ended = &c.Decision, c.Inventory.At
	a.Checkpoint, a.CheckpointWritten = c.Inventory.Checkpoint, c.Inventory.CheckpointWritten
	s.History, s.undecided = append(s.History, a), false
	s.Next = Next{N: a.N + 1, Plan: c.Decision.Next, Checkpoint: c.Decision.Resume, Expected: c.Decision.Expected}
}

// replay makes the decision of a climb again.
func (c Climbed) replay(began Began, before []strategy.Attempt) Replayed {
	ascent := strategy.Climb(began.Policy, began.Job, before, c.Attempt, c.Inventory)
	r := Replayed{Attempt: c.Attempt.N, Diagnosis: c.Attempt.Diagnosis, Decision: ascent.Decision, Same: sameDecision(ascent.Decision, c.Decision)}
	if !ascent.Decision.Relaunch {
		r.Decision = strategy.Decision{Rule: c.Decision.Rule, Reason: "the plan is kept: " + ascent.Refused}
	}
	return r
}
