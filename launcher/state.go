package launcher

import (
	"cmp"
	"reflect"
	"slices"
	"time"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/memory"
)

// State is the state of a run: the attempts so far, and the next one. Resume rebuilds it from the journal.
type State struct {
	History []strategy.Attempt
	Next    Next
	Verdict Verdict
	// Policy is the policy that the run began with, made stricter by later starts.
	Policy strategy.Policy
	// Job is the job as the newest gpurun of the run has read it.
	Job strategy.Job
	// Closed: the verdict has been written.
	Closed bool

	// begun: ranks have been started.
	begun bool
	// fresh: no earlier gpurun process of this run is known. began is the job that the first one began with.
	fresh bool
	began strategy.Job
	// inventory is that of the last decision.
	inventory strategy.Inventory
	// undecided: the last attempt of the history has no decision yet.
	undecided bool
	// relaunch is the decision that led to Next.
	relaunch relaunch
	// account adds up the GPU time of all attempts that were started.
	account strategy.GPUAccount
	// ending is the end of the last attempt of the history.
	ending attemptEnd
	// cutOffArmed has the remedies in place of an attempt that ended together with gpurun, which is no part of
	// the history; nil: none.
	cutOffArmed *strategy.ArmedPlan
}

// A relaunch is a decision to launch the job again.
type relaunch struct {
	attempts int             // of the history, up to the one after which it was made; 0: there was no relaunch
	ending   attemptEnd      // of that attempt
	policy   strategy.Policy // that allowed it
}

// arming is the job with the remedies in place that are known from outside the history.
func (s *State) arming() strategy.Job {
	j := s.Job
	j.Armed = cmp.Or(s.cutOffArmed, j.Armed)
	return j
}

// Next is the attempt that comes next.
type Next struct {
	N          int
	Plan       strategy.Plan
	Remedy     strategy.Remedy // the remedy that led to it, empty for the first attempt
	Checkpoint string
	Written    time.Time          // of Checkpoint; zero: not known
	Rescue     bool               // it follows a failure
	Expected   *memory.Prediction // the prediction for the plan
	Facts      []strategy.Fact    // from before it started

	// ran: ranks have run with this plan since it was decided, since began, if that time is known.
	ran   bool
	began time.Time
}

// End adds an attempt to the history.
func (s *State) End(e strategy.Evidence, d strategy.Diagnosis) {
	if e.EndedWell() {
		e.StopSignal = 0 // it came too late
	}
	a := attemptOf(s.Job, e, d, s.Next)
	a.Arguments = s.Job.Arguments(a.Plan, s.History)
	if n := len(s.History); n > 0 {
		before := &s.History[n-1]
		share(&a.Plan, before.Plan)
		share(&a.Observed, before.Observed)
		share(&a.Refused, before.Refused)
		share(&a.Diagnosis, before.Diagnosis)
	}
	s.History = append(s.History, a)
	s.Verdict.Model = cmp.Or(e.Model(), s.Verdict.Model)
	if e.Unstarted == nil {
		s.spend(s.History[len(s.History)-1])
		s.begun, s.Next.ran, s.Next.began = true, true, e.Started
	}
	s.undecided, s.ending = true, endingOf(e, d, s.Job.Ceiling)
}

// attemptOf makes an attempt for the history; next is its plan and checkpoint.
func attemptOf(j strategy.Job, e strategy.Evidence, d strategy.Diagnosis, next Next) strategy.Attempt {
	a := strategy.Attempt{
		N: e.Attempt, Plan: e.Plan, Remedy: next.Remedy, Expected: next.Expected, From: next.Checkpoint, Diagnosis: d,
		Started: e.Started, Ended: e.Ended, Steps: e.Steps(), Stepping: e.Stepping(), StopSignal: e.StopSignal,
		CutShort: e.CutShort(), Stuck: e.Stuck(),
		Observed: e.Observed(j), World: e.World(), Alone: e.Alone(), Asked: e.Asked(), Refused: e.Refused(),
		Halted: e.Halted, Nothing: e.Nothing(), Unstepped: e.Unstepped(), Unstarted: e.Unstarted,
		Parsed: e.Parsed(j), Fresh: e.Fresh(), Loss: e.Loss(), Measured: e.Measured(), Speedup: e.StoppedForSpeedup(),
		Kept: e.Kept, InPlace: e.InPlace(),
	}
	_, a.InPlaceRefused = e.InPlaceRefused()
	if d.Fatal {
		a.Speedup = nil // it failed before the ranks were stopped
	}
	return a
}

// spend adds the attempt that was next to the account of GPU time.
func (s *State) spend(a strategy.Attempt) {
	span := strategy.GPUSpan{Started: a.Started, Ended: a.Ended, GPUs: max(s.Job.Ranks, a.World), Resumed: s.Next.Written}
	if a.Fresh {
		span.Resumed = time.Time{}
	}
	for _, again := range a.InPlace {
		if span.Rescued.IsZero() || !again.At.IsZero() && again.At.Before(span.Rescued) {
			span.Rescued = again.At
		}
	}
	if s.Next.Rescue {
		span.Rescued = a.Started
	}
	s.account.Add(span)
	s.Next.Rescue = false // if the plan runs again, it is no other rescue
}

// gpuTime sums up the GPU time after a decision.
func (s *State) gpuTime(d strategy.Decision, inv strategy.Inventory) *strategy.GPUTime {
	t := s.account.Resumed(inv.CheckpointWritten)
	switch {
	case d.Outcome == strategy.Trained:
		t = s.account.Trained()
	case d.Relaunch:
		t = s.account.Resumed(s.written(d.Resume, inv))
	}
	return &t
}

// written is the time of a checkpoint; zero: not known, or none.
func (s *State) written(checkpoint string, inv strategy.Inventory) time.Time {
	switch checkpoint {
	case "":
		return time.Time{}
	case inv.Checkpoint:
		return inv.CheckpointWritten
	}
	for _, a := range slices.Backward(s.History) {
		if a.Checkpoint == checkpoint {
			return a.CheckpointWritten
		}
	}
	return time.Time{}
}

// diagnosis is that of the last attempt.
func (s *State) diagnosis() strategy.Diagnosis { return s.History[len(s.History)-1].Diagnosis }

// decide adds the decision after the last attempt of the history. A decision that belongs to no attempt
// changes nothing. decide reports whether the run is done.
func (s *State) decide(d Decided) (done bool) {
	if !s.undecided {
		return false
	}
	last := &s.History[len(s.History)-1]
	last.Checkpoint, last.CheckpointWritten = d.Inventory.Checkpoint, d.Inventory.CheckpointWritten
	s.undecided = false
	again := len(s.Verdict.Attempts) > 0 && s.Verdict.Attempts[len(s.Verdict.Attempts)-1].N >= last.N
	if again { // decided again, perhaps before one that was cut off
		s.Verdict.Attempts = slices.DeleteFunc(slices.Clone(s.Verdict.Attempts),
			func(t AttemptSummary) bool { return t.N == last.N })
	}
	s.Verdict.record(s.Job, s.History, s.ending, d.Decision)
	if again {
		slices.SortStableFunc(s.Verdict.Attempts, func(a, b AttemptSummary) int { return cmp.Compare(a.N, b.N) })
	}
	s.inventory = d.Inventory
	s.Verdict.GPUTime = s.gpuTime(d.Decision, d.Inventory)
	if d.Decision.Relaunch {
		s.relaunch = relaunch{attempts: len(s.History), ending: s.ending, policy: s.Policy}
		s.Next = Next{
			N: max(last.N+1, s.Next.N), Plan: d.Decision.Next, Remedy: d.Decision.Remedy, Checkpoint: d.Decision.Resume,
			Expected: d.Decision.Expected,
			Written:  s.written(d.Decision.Resume, d.Inventory), Rescue: last.Speedup == nil,
		}
		return false
	}
	s.end(d.Decision)
	return d.Decision.Outcome.Final()
}

// end makes the verdict of a run. It computes here, from all attempts, what the changes saved and cost.
func (s *State) end(d strategy.Decision) {
	s.Verdict.price(s.History, strategy.Prices(s.Job, s.History))
	s.Verdict.end(d)
}

// Close ends a run as decided, and writes its verdict.
func (s *State) Close(store Store, d strategy.Decision) (Verdict, error) {
	s.end(d)
	return s.Verdict, Finish(store, s.Verdict)
}

// reopen removes the decision after the last attempt if that ran out of memory while the run was being
// stopped: the plan must not run a second time, so that the next start decides again.
func (s *State) reopen() {
	if len(s.History) == 0 || s.undecided {
		return
	}
	last := &s.History[len(s.History)-1]
	if last.StopSignal != 0 && last.Diagnosis.OutOfMemory() && s.Next.ran && s.Next.N == last.N+1 {
		last.StopSignal, s.undecided = 0, true
	}
}

// tighten takes in the policy of another start of the run. If it forbids the next attempt, the decision that led to it
// is made again, unless it is settled. Attempts since then, which were stopped from outside or can be tried again, had
// the same plan: they leave the history, because the decisions after them choose no plan.
func (s *State) tighten(p strategy.Policy, settled bool) {
	s.Policy = p
	if s.relaunch.attempts == 0 || s.undecided || settled || reflect.DeepEqual(p, s.relaunch.policy) {
		return
	}
	fewer := p.MaxAttempts < s.relaunch.policy.MaxAttempts && s.relaunch.attempts >= p.MaxAttempts
	if fewer || p.Forbids(s.Job, s.Next.Plan) != "" {
		s.History, s.ending, s.undecided = s.History[:s.relaunch.attempts:s.relaunch.attempts], s.relaunch.ending, true
	}
}

// Resume rebuilds the state from a journal's events. done reports that the end of the run is decided, even if
// its verdict is not written (Closed).
//
// If gpurun was killed while an attempt ran, the attempt's number is used up, and its plan runs again. The
// same holds for an attempt that could not be started before any other was.
func Resume(first strategy.Plan, run string, events []Event) (s State, done bool) {
	r := resumed{State: State{Next: Next{Plan: first}, Verdict: Verdict{Run: run}}}
	for _, e := range events {
		r.take(e)
	}
	r.cutOff(r.open)
	return r.State, r.done
}

// resumed is a state while its journal is read.
type resumed struct {
	State
	open unfinished
	done bool
}

// take takes in the next event.
func (r *resumed) take(e Event) {
	switch e := e.(type) {
	case Began:
		r.Job = e.Job
		if r.open.exited != nil {
			r.cutOff(r.open)
			r.open = unfinished{}
		}
		r.reopen()
		r.tighten(e.Policy, r.done || r.open.spedUp != nil)
	case Started:
		r.undecided = false
		r.cutOff(r.open)
		r.open, r.done, r.Closed = unfinished{started: &e}, false, false
		r.Next = Next{N: e.N + 1, Plan: e.Plan, Remedy: e.Remedy, Checkpoint: e.Checkpoint, Expected: e.Expected,
			Written: e.Written, Rescue: e.Rescue}
	case InPlace:
		r.open.inPlace = strategy.FoldInPlace(r.open.inPlace, e.InPlace)
	case SpedUp:
		r.open.spedUp = &e
	case Exited:
		r.open.exited = &e
	case Ended:
		r.open = unfinished{}
		if r.begun || e.Evidence.Unstarted == nil {
			r.End(e.Evidence, strategy.Diagnose(e.Evidence))
		}
		r.Next.N = e.Evidence.Attempt + 1
	case Decided:
		r.done, r.Closed = r.decide(e), false
	case Finished:
		r.Verdict, r.open = e.Verdict, unfinished{}
		r.done, r.Closed = e.Verdict.Outcome.Final(), true
	}
}

// unfinished is an attempt that has no end in the journal: its start, the speed-up for which its ranks were
// being stopped, and how they exited. A part is nil if the journal does not have the event.
type unfinished struct {
	started *Started
	inPlace []strategy.InPlace // the repeats that the journal has
	spedUp  *SpedUp
	exited  *Exited
}

// cutOff takes in the attempt that ended because gpurun was killed, if there is one. If it was being stopped
// for a faster plan, it becomes part of the history, and that plan comes next.
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
	if u.spedUp == nil {
		s.spend(strategy.Attempt{Started: u.started.At, InPlace: u.inPlace})
		s.Next.ran, s.Next.began = true, u.started.At
		if len(u.inPlace) > 0 {
			s.cutOffArmed = &strategy.ArmedPlan{Plan: u.started.Plan,
				Remedies: strategy.Arm(strategy.ArmedFor(s.arming(), s.History, u.started.Plan), u.inPlace)}
		}
		s.Verdict.cutOff(u.started, u.inPlace)
		return
	}
	s.goUp(*u.spedUp)
	s.Verdict.record(s.Job, s.History, attemptEnd{}, u.spedUp.Decision)
}

// goUp takes in an attempt that was being stopped for a faster plan and has no end in the journal.
func (s *State) goUp(c SpedUp) {
	a := c.Attempt
	a.Speedup, a.Ended = &c.Decision, c.Inventory.At
	a.Checkpoint, a.CheckpointWritten = c.Inventory.Checkpoint, c.Inventory.CheckpointWritten
	s.spend(a)
	s.History, s.undecided = append(s.History, a), false
	s.relaunch = relaunch{attempts: len(s.History), policy: s.Policy}
	s.Next = Next{N: a.N + 1, Plan: c.Decision.Next, Checkpoint: c.Decision.Resume, Expected: c.Decision.Expected,
		Written: s.written(c.Decision.Resume, c.Inventory)}
}

// replay makes the decision of a speed-up again.
func (c SpedUp) replay(began Began, before []strategy.Attempt) Replayed {
	speedup := strategy.FindSpeedup(began.Policy, began.Job, before, c.Attempt, c.Inventory)
	r := Replayed{Attempt: c.Attempt.N, Diagnosis: c.Attempt.Diagnosis, Decision: speedup.Decision,
		Same: sameDecision(speedup.Decision, c.Decision)}
	if !speedup.Decision.Relaunch {
		r.Decision = strategy.Decision{Rule: c.Decision.Rule, Reason: "the plan is kept: " + speedup.Refused}
	}
	return r
}
