package launcher

import "github.com/gpurun/gpurun/strategy"

// State is where a run stands: what was tried, and what comes next. It can be
// rebuilt from the journal (Resume).
type State struct {
	History []strategy.Attempt
	Next    Next
	Verdict Verdict
	// Policy is the one that the run began with.
	Policy strategy.Policy

	// begun: ranks have been started.
	begun bool
	// undecided: the last attempt of the history has no decision yet.
	undecided bool
	// traceback is what the last attempt of the history ended with.
	traceback []string
}

// Next is the attempt that comes next.
type Next struct {
	N          int
	Plan       strategy.Plan
	Rung       strategy.Rung // that led to it, empty for the first
	Checkpoint string
	Facts      []strategy.Fact // what was seen before it started
}

// End adds an attempt to the history.
func (s *State) End(e strategy.Evidence, d strategy.Diagnosis) {
	if e.EndedWell() {
		e.StopSignal = 0 // it came when there was nothing left to stop
	}
	s.History = append(s.History, strategy.Attempt{
		N: e.Attempt, Plan: e.Plan, Rung: s.Next.Rung, Diagnosis: d,
		Started: e.Started, Ended: e.Ended, Steps: e.Steps(), StopSignal: e.StopSignal, CutShort: e.CutShort(), Stuck: e.Stuck(),
		Observed: e.Observed(), Halted: e.Halted, Nothing: e.Nothing(), Unstarted: e.Unstarted,
	})
	s.begun = s.begun || e.Unstarted == nil
	s.undecided, s.traceback = true, Traceback(e, d)
}

// diagnosis is that of the last attempt.
func (s *State) diagnosis() strategy.Diagnosis { return s.History[len(s.History)-1].Diagnosis }

// decide adds what was decided after the last attempt of the history. A decision
// that belongs to none changes nothing.
func (s *State) decide(d strategy.Decision) {
	if !s.undecided {
		return
	}
	last := s.History[len(s.History)-1]
	s.undecided = false
	s.Verdict.record(last, s.traceback, d)
	if d.Relaunch {
		s.Next = Next{N: last.N + 1, Plan: d.Next, Rung: d.Rung, Checkpoint: d.Resume}
		return
	}
	s.Verdict.end(d)
}

// Resume rebuilds the state from a journal's events; done says that the run has
// its verdict. An attempt that was started and did not end was cut off together
// with gpurun: its number is used up, and its plan is run again. So is that of one
// which could not be started before any other was.
func Resume(first strategy.Plan, run string, events []Event) (s State, done bool) {
	s = State{Next: Next{Plan: first}, Verdict: Verdict{Run: run}}
	var open *Started // has not ended
	for _, e := range events {
		switch e := e.(type) {
		case Started:
			s.cutOff(open)
			open = &e
			s.Next = Next{N: e.N + 1, Plan: e.Plan, Rung: e.Rung, Checkpoint: e.Checkpoint}
		case Ended:
			open = nil
			if s.begun || e.Evidence.Unstarted == nil {
				s.End(e.Evidence, strategy.Diagnose(e.Evidence))
			}
			s.Next.N = e.Evidence.Attempt + 1
		case Decided:
			s.decide(e.Decision)
		case Finished:
			s.Verdict, open = e.Verdict, nil
			done = e.Verdict.Outcome != strategy.Stopped && e.Verdict.Outcome != strategy.Retry
		}
	}
	s.cutOff(open)
	return s, done
}

// cutOff takes in an attempt that ended together with gpurun, if there is one.
func (s *State) cutOff(a *Started) {
	if a != nil {
		s.begun = true
		s.Verdict.cutOff(a)
	}
}
