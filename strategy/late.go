package strategy

import (
	"fmt"
	"time"

	"github.com/gpurun/gpurun/strategy/cause"
)

const (
	// lateTimes is how many times the way to its first step an attempt has to have before
	// the end of the time, and lateLeast the least that it has to: stopping ranks takes some.
	lateTimes = 1.5
	lateLeast = 2 * time.Minute
)

// late says why the attempt that was decided upon is not begun now, since it could not
// end in time: before the run has to be over it would hardly make a step. It is empty where
// there is time, or no end is known.
func (s *situation) late(d Decision) string {
	end := s.inventory.Deadline
	if !d.Relaunch || end.IsZero() {
		return ""
	}
	left := end.Sub(s.inventory.At.Add(d.After.Duration()))
	way := s.wayToAStep()
	if need := max(lateLeast, time.Duration(lateTimes*float64(way))); left >= need {
		return ""
	}
	why := fmt.Sprintf("%s are left until the deadline, too few to begin it", max(left, 0).Round(time.Second))
	if way > 0 {
		why = fmt.Sprintf("%s are left until the deadline, and an attempt takes %s to its first step", max(left, 0).Round(time.Second), way.Round(100*time.Millisecond))
	}
	if d.Resume != "" {
		why += "; it goes on from " + d.Resume
	}
	return why
}

// wayToAStep is how long the last attempt took from its start to its first step; where it
// made none, how long another of the run did, or itself while it loaded. It is 0 where
// nobody knows.
func (s *situation) wayToAStep() time.Duration {
	if before := s.last.Stepping.Before; before > 0 {
		return before.Duration()
	}
	way := s.relaunchCost()
	if s.diagnosis.Phase == cause.Load {
		way = max(way, s.last.Lasted())
	}
	return way
}

// Postponed is the decision that an end that is near makes: no further attempt is
// started, and the next start of the run goes on with what was decided.
func Postponed(next Decision) Decision {
	return Decision{Rule: "deadline", Outcome: Retry, Code: CodeRetry, Reason: next.Reason + ", when this run is started again: " + next.Late}
}
