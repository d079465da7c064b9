package strategy

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// A Pace is how fast a rank makes steps, by the count of its own process.
type Pace struct {
	Rank int
	Step int     // the latest
	Took Seconds // a step, of late; 0: not known
	Idle Seconds // since the latest step
}

// A Slow is a rank that is slow beside the others.
type Slow struct {
	Pace
	// Others is the step that the others are at, OthersTook what one takes them; the medians.
	Others     int
	OthersTook Seconds
}

// What slow is. Steps are heard of some seconds late, and ranks that wait for each other are
// never many apart.
const (
	slowTimes  = 2 // times the others' step
	slowSteps  = 10
	slowBehind = 30 * time.Second // that these many steps take the others
)

// Stragglers are the ranks that are slow beside the others: many steps behind them, or with
// steps that take far longer. A rank that has made no step does not count, and of two the
// faster one is what the other is held to.
func Stragglers(all []Pace) (slow []Slow) {
	var steps []int
	var times []Seconds
	for _, p := range all {
		if p.Step > 0 {
			steps = append(steps, p.Step)
		}
		if p.Step > 0 && p.Took > 0 {
			times = append(times, p.Took)
		}
	}
	if len(steps) < 2 || len(times) == 0 {
		return nil
	}
	slices.Sort(steps)
	slices.Sort(times)
	step, took := steps[len(steps)/2], times[(len(times)-1)/2]
	for _, p := range all {
		gap := step - p.Step
		behind := gap > slowSteps && time.Duration(gap) > slowBehind/took.Duration()
		if p.Step > 0 && (behind || p.Took > slowTimes*took) {
			slow = append(slow, Slow{p, step, took})
		}
	}
	slices.SortStableFunc(slow, func(a, b Slow) int { return cmp.Or(a.Step-b.Step, cmp.Compare(b.Took, a.Took)) })
	return slow
}

// String says how slow: "at step 40, where the others are at 100; its last step was 5m0s ago",
// "a step takes 4.1 s, and the others' 1 s".
func (s Slow) String() string {
	switch idle := s.Idle.Duration(); {
	case s.Took > slowTimes*s.OthersTook:
		return fmt.Sprintf("a step takes %.3g s, and the others' %.3g s", s.Took.Duration().Seconds(), s.OthersTook.Duration().Seconds())
	case idle > slowBehind && s.Idle > slowTimes*s.OthersTook:
		return fmt.Sprintf("at step %d, where the others are at %d; its last step was %s ago", s.Step, s.Others, idle.Round(time.Second))
	}
	return fmt.Sprintf("at step %d, where the others are at %d", s.Step, s.Others)
}
