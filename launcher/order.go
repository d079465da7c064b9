package launcher

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/gpurun/gpurun/strategy"
)

// A JournalFault is an event that is out of order in a journal, or that has impossible values: someone
// changed the journal, or a part of it is lost.
type JournalFault struct {
	Event int // its index, from 0
	Err   error
}

func (m *JournalFault) Error() string { return fmt.Sprintf("event %d: %v", m.Event+1, m.Err) }

// Unwrap returns the reason.
func (m *JournalFault) Unwrap() error { return m.Err }

// CheckOrder reports the first event that is out of order, or has impossible values, as a *JournalFault. A
// killed gpurun leaves events in order, even if an attempt has no end, or no decision, or a decision no
// verdict.
func CheckOrder(events []Event) error {
	var o order
	for i, e := range events {
		if err := o.take(e); err != nil {
			return &JournalFault{Event: i, Err: err}
		}
	}
	return nil
}

// order is the state after the events read so far.
type order struct {
	began, begun bool // began: a gpurun process has; begun: ranks have
	next         int  // number of the next attempt
	open         bool // the latest attempt has started and not ended
	speedups     bool // and is being stopped for a faster plan
	exited       bool // and all its ranks have ended
	undecided    bool // the attempt has ended, and has no decision yet
	fresh        bool // a gpurun process has begun, and started nothing yet
	decision     *strategy.Decision
	closed       bool // the run has its last verdict
	policy       strategy.Policy
	relaunched   strategy.Policy // the policy of the latest decision to launch the job again
}

func (o *order) take(e Event) error {
	if _, notice := e.(Noticed); notice && !o.closed {
		return nil
	}
	if _, begins := e.(Began); !begins && !o.began {
		return fmt.Errorf("%s comes before the run has begun", e.kind())
	}
	if o.closed {
		return fmt.Errorf("%s comes after the verdict", e.kind())
	}
	switch e := e.(type) {
	case Began:
		return o.begin(e)
	case Started:
		return o.start(e)
	case InPlace:
		if !o.open || e.N != o.next-1 {
			return fmt.Errorf("attempt %d did a step again, and does not run", e.N)
		}
	case SpedUp:
		return o.speedup(e)
	case Exited:
		return o.exit(e.Evidence)
	case Ended:
		return o.end(e.Evidence)
	case Decided:
		return o.decide(e.Decision)
	case Finished:
		return o.finish(e.Verdict)
	}
	return nil
}

// begin takes in that a gpurun process begins. The ranks of the process before it are gone.
func (o *order) begin(b Began) error {
	o.begun = o.begun || o.open
	if o.open && o.exited {
		o.undecided, o.decision = true, nil
	}
	o.began, o.open, o.fresh, o.policy = true, false, true, b.Policy
	return errors.Join(b.Job.Written.Validate(), b.Plan.Validate())
}

func (o *order) start(s Started) error {
	switch {
	case s.N != o.next:
		return fmt.Errorf("attempt %d is started where attempt %d would be", s.N, o.next)
	case o.open:
		return fmt.Errorf("attempt %d is started, and attempt %d has not ended", s.N, s.N-1)
	case o.undecided:
		return fmt.Errorf("attempt %d is started, and nothing was decided after attempt %d", s.N, s.N-1)
	case !o.fresh && (o.decision == nil || !o.decision.Relaunch):
		return fmt.Errorf("attempt %d is started, and that was not decided", s.N)
	}
	o.next, o.open, o.speedups, o.exited, o.fresh = s.N+1, true, false, false, false
	return s.Plan.Validate()
}

func (o *order) speedup(c SpedUp) error {
	switch {
	case !o.open || c.Attempt.N != o.next-1:
		return fmt.Errorf("attempt %d switches to a faster plan, and does not run", c.Attempt.N)
	case o.speedups:
		return fmt.Errorf("attempt %d switches to a faster plan a second time", c.Attempt.N)
	case !c.Decision.Relaunch:
		return fmt.Errorf("attempt %d switches to a faster plan, and no relaunch was decided", c.Attempt.N)
	}
	o.speedups = true
	return errors.Join(c.Attempt.Plan.Validate(), c.Decision.Next.Validate())
}

func (o *order) exit(e strategy.Evidence) error {
	if !o.open || e.Attempt != o.next-1 || o.exited {
		return fmt.Errorf("the ranks of attempt %d have ended, and do not run", e.Attempt)
	}
	o.exited = true
	return e.Plan.Validate()
}

func (o *order) end(e strategy.Evidence) error {
	switch {
	case o.open && e.Attempt != o.next-1:
		return fmt.Errorf("attempt %d has ended where attempt %d runs", e.Attempt, o.next-1)
	case !o.open && (e.Unstarted == nil || e.Attempt != o.next || o.undecided):
		return fmt.Errorf("attempt %d has ended, and was not started", e.Attempt)
	case e.Ranks < 0:
		return fmt.Errorf("attempt %d has %d ranks", e.Attempt, e.Ranks)
	}
	o.begun = o.begun || e.Unstarted == nil
	o.next, o.open, o.fresh, o.undecided, o.decision = e.Attempt+1, false, false, o.begun, nil
	return e.Plan.Validate()
}

func (o *order) decide(d strategy.Decision) error {
	continues := o.decision != nil && (o.decision.Relaunch || !o.decision.Outcome.Final())
	again := o.fresh && continues && (o.decision.Outcome == strategy.Stopped || !reflect.DeepEqual(o.policy, o.relaunched))
	switch {
	case !o.undecided && !again:
		return errors.New("a decision follows no attempt that has ended")
	case !d.Relaunch && !d.Outcome.Valid():
		return fmt.Errorf("the decision's outcome is %q, which does not exist", d.Outcome)
	}
	if o.undecided, o.decision = false, &d; d.Relaunch {
		o.relaunched = o.policy
	}
	return d.Next.Validate()
}

func (o *order) finish(v Verdict) error {
	decided := o.decision != nil && !o.decision.Relaunch && o.decision.Outcome == v.Outcome
	switch {
	case !v.Outcome.Valid():
		return fmt.Errorf("the verdict's outcome is %q, which does not exist", v.Outcome)
	case (v.Outcome == strategy.Trained) != (v.Code == 0):
		return fmt.Errorf("the verdict's outcome is %q, and its code %d", v.Outcome, v.Code)
	case o.undecided || (o.open || !decided) && v.Outcome.Final():
		return fmt.Errorf("the verdict %q is not what was decided", v.Outcome)
	}
	o.open, o.closed = false, v.Outcome.Final() // a signal may stop gpurun while ranks are being started
	return nil
}
