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
	// Data is how long the rank waits for data in a step, Forward what its forward passes take
	// of one, without other ranks; 0: not known.
	Data, Forward Seconds
}

// A Slow is a rank that is slow beside the others.
type Slow struct {
	Pace
	// Others are the medians of all ranks.
	Others Pace
	// Own says that it makes steps as fast as the others, which wait for its own part of each;
	// ByData that it is its data that come late, not its forward pass that takes long.
	Own, ByData bool
	// Pair says that there is one other rank.
	Pair bool
}

// What slow is. Steps are heard of some seconds late, and ranks that wait for each other are
// never many apart.
const (
	slowTimes  = 2 // times the others' step
	slowSteps  = 10
	slowBehind = 30 * time.Second // that these many steps take the others
	// slowShare of a step that one in so many is what its own part has to be above the others'.
	slowShare = 5
)

// Stragglers are the ranks that are slow beside the others: many steps behind them, or with
// steps that take far longer. Where all make steps at one pace, since they wait for each
// other, it is those that the others wait for. A rank that has made no step does not count,
// and of two the faster one is what the other is held to.
func Stragglers(all []Pace) []Slow {
	all = slices.DeleteFunc(slices.Clone(all), func(p Pace) bool { return p.Step == 0 })
	if len(all) < 2 || !slices.ContainsFunc(all, timed) {
		return nil
	}
	slices.SortStableFunc(all, func(a, b Pace) int { return a.Step - b.Step })
	others := Pace{
		Step: all[len(all)/2].Step, Took: middle(all, func(p Pace) Seconds { return p.Took }),
		Data: middle(all, func(p Pace) Seconds { return p.Data }), Forward: middle(all, func(p Pace) Seconds { return p.Forward }),
	}
	var slow []Slow
	for _, p := range all {
		if p.lags(others) {
			slow = append(slow, Slow{Pace: p, Others: others, Pair: len(all) == 2})
		}
	}
	if len(slow) == 0 {
		return awaited(all, others)
	}
	slices.SortStableFunc(slow, func(a, b Slow) int { return cmp.Or(a.Step-b.Step, cmp.Compare(b.Took, a.Took)) })
	return slow
}

// lags reports whether a rank makes fewer steps than the others.
func (p Pace) lags(others Pace) bool {
	gap := others.Step - p.Step
	behind := gap > slowSteps && time.Duration(gap) > slowBehind/others.Took.Duration()
	return behind || p.Took > slowTimes*others.Took
}

// awaited are the ranks whose own part of a step is what the others wait for, the largest
// first. Only what all ranks tell can be compared: where some load data for others, or compute
// something else, they do not. Nor is more than half of them what the rest waits for.
func awaited(all []Pace, others Pace) (slow []Slow) {
	data := !slices.ContainsFunc(all, func(p Pace) bool { return p.Data == 0 })
	forward := !slices.ContainsFunc(all, func(p Pace) bool { return p.Forward == 0 })
	own := func(p Pace) (sum Seconds) {
		if data {
			sum += p.Data
		}
		if forward {
			sum += p.Forward
		}
		return sum
	}
	usual := middle(all, own)
	for _, p := range all {
		if timed(p) && own(p)-usual > p.Took/slowShare {
			slow = append(slow, Slow{Pace: p, Others: others, Own: true, Pair: len(all) == 2})
		}
	}
	if len(slow) > len(all)/2 {
		return nil
	}
	slices.SortStableFunc(slow, func(a, b Slow) int { return cmp.Compare(own(b.Pace), own(a.Pace)) })
	for i := range slow {
		slow[i].ByData = data && (!forward || slow[i].Data-others.Data >= slow[i].Forward-others.Forward)
	}
	return slow
}

// timed reports whether a step's time is known.
func timed(p Pace) bool { return p.Took > 0 }

// middle is the median of a figure, of two the lower one, over the ranks whose steps' time is
// known.
func middle(all []Pace, figure func(Pace) Seconds) Seconds {
	var figures []Seconds
	for _, p := range all {
		if timed(p) {
			figures = append(figures, figure(p))
		}
	}
	slices.Sort(figures)
	return figures[(len(figures)-1)/2]
}

// String says how slow: "at step 40, where the others are at 100; its last step was 5m0s ago",
// "a step takes 4.1 s, and the others' 1 s", "a step of 1.2 s waits 0.9 s for data, and
// the others' 0.1 s".
func (s Slow) String() string {
	others, possessive, are := "the others", "the others'", "are"
	if s.Pair {
		others, possessive, are = "the other", "the other's", "is"
	}
	seconds := func(d Seconds) string { return fmt.Sprintf("%.3g s", d.Duration().Round(time.Millisecond).Seconds()) }
	switch idle := s.Idle.Duration(); {
	case s.Own && s.ByData:
		return fmt.Sprintf("a step of %s waits %s for data, and %s %s", seconds(s.Took), seconds(s.Data), possessive, seconds(s.Others.Data))
	case s.Own:
		return fmt.Sprintf("the forward pass takes %s of a step's %s, and %s %s", seconds(s.Forward), seconds(s.Took), possessive, seconds(s.Others.Forward))
	case s.Took > slowTimes*s.Others.Took:
		return fmt.Sprintf("a step takes %s, and %s %s", seconds(s.Took), possessive, seconds(s.Others.Took))
	case idle > slowBehind && s.Idle > slowTimes*s.Others.Took:
		return fmt.Sprintf("at step %d, where %s %s at %d; its last step was %s ago", s.Step, others, are, s.Others.Step, idle.Round(time.Second))
	}
	return fmt.Sprintf("at step %d, where %s %s at %d", s.Step, others, are, s.Others.Step)
}
