package launcher

import "github.com/gpurun/gpurun/strategy"

// State is where a run stands: what was tried, and what comes next. It can be
// rebuilt from the journal (Resume).
type State struct {
	History []strategy.Attempt
	Next    Next
	Verdict Verdict

	// undecided: the last attempt of the history has no decision yet.
	undecided bool
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
		Started: e.Started, Ended: e.Ended, Steps: e.Steps(), StopSignal: e.StopSignal, Stuck: e.Stuck(),
		Observed: e.Observed(), Halted: e.Halted, Nothing: e.Nothing(),
	})
	s.undecided = true
}

// diagnosis is that of the last attempt.
func (s *State) diagnosis() strategy.Diagnosis { return s.History[len(s.History)-1].Diagnosis }

// decide adds what was decided after the last attempt of the history.
func (s *State) decide(d strategy.Decision) {
	last := s.History[len(s.History)-1]
	s.undecided = false
	s.Verdict.record(last, d)
	if d.Relaunch {
		s.Next = Next{N: last.N + 1, Plan: d.Next, Rung: d.Rung, Checkpoint: d.Resume}
		return
	}
	s.Verdict.end(d)
}

// Resume rebuilds the state from a journal's events; done says that the run has
// its verdict. An attempt that was started and did not end was cut off together
// with gpurun: its number is used up, and its plan is run again.
func Resume(first strategy.Plan, run string, events []Event) (s State, done bool) {
	s = State{Next: Next{Plan: first}, Verdict: Verdict{Run: run}}
	var open *Started // has not ended
	for _, e := range events {
		switch e := e.(type) {
		case Started:
			s.Verdict.cutOff(open)
			open = &e
			s.Next = Next{N: e.N + 1, Plan: e.Plan, Rung: e.Rung, Checkpoint: e.Checkpoint}
		case Ended:
			open = nil
			s.End(e.Evidence, strategy.Diagnose(e.Evidence))
		case Decided:
			s.decide(e.Decision)
		case Finished:
			s.Verdict, open = e.Verdict, nil
			done = e.Verdict.Outcome != strategy.Stopped && e.Verdict.Outcome != strategy.Retry
		}
	}
	s.Verdict.cutOff(open)
	return s, done
}
