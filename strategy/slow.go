package strategy

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// A Pace is a rank's speed in steps, counted in its process.
type Pace struct {
	Rank int
	Step int     // the latest
	Took Seconds // a recent step; 0: not known
	Idle Seconds // since the latest step
	// Data is the wait for data in a step, Forward the time of its forward passes, both without
	// waits for other ranks; 0: not known.
	Data, Forward Seconds
}

// A Slow is a rank that is slower than the others.
type Slow struct {
	Pace
	Others Pace // medians of all ranks
	// Own: it makes steps as fast as the others, which wait for its part of each. ByData: its
	// data arrive late; otherwise its forward pass is slow.
	Own, ByData bool
	Pair        bool // there is one other rank
}

// The limits of a slow rank. Reports of steps are some seconds late, and ranks that wait for each
// other are never many steps apart.
const (
	slowTimes  = 2 // times the others' step
	slowSteps  = 10
	slowBehind = 30 * time.Second // in which the others make those steps
	slowShare  = 5                // the rank's own part is a fifth of a step above the others'
)

// Stragglers lists the slow ranks: many steps behind the others, or with steps that take far
// longer. If all make steps at one pace because they wait for each other, these are the ranks
// that the others wait for. A rank without a step does not count. With two ranks, the slower is
// compared with the faster.
func Stragglers(all []Pace) []Slow {
	all = slices.DeleteFunc(slices.Clone(all), func(p Pace) bool { return p.Step == 0 })
	if len(all) < 2 || !slices.ContainsFunc(all, timed) {
		return nil
	}
	slices.SortStableFunc(all, func(a, b Pace) int { return a.Step - b.Step })
	others := Pace{
		Step: all[len(all)/2].Step, Took: middle(all, func(p Pace) Seconds { return p.Took }),
		Data:    middle(all, func(p Pace) Seconds { return p.Data }),
		Forward: middle(all, func(p Pace) Seconds { return p.Forward }),
	}
	var slow []Slow
	for _, p := range all {
		gap := others.Step - p.Step
		behind := gap > slowSteps && time.Duration(gap) > slowBehind/others.Took.Duration()
		if behind || p.Took > slowTimes*others.Took {
			slow = append(slow, Slow{Pace: p, Others: others, Pair: len(all) == 2})
		}
	}
	if len(slow) == 0 {
		return awaited(all, others)
	}
	slices.SortStableFunc(slow, func(a, b Slow) int { return cmp.Or(a.Step-b.Step, cmp.Compare(b.Took, a.Took)) })
	return slow
}

// awaited lists the ranks whose own part of a step the others wait for, the largest part first.
// The figures are compared only if all ranks have them: some may load data for others, or compute
// something else. At most half of the ranks are awaited by the rest.
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
			byData := data && (!forward || p.Data-others.Data >= p.Forward-others.Forward)
			slow = append(slow, Slow{Pace: p, Others: others, Own: true, ByData: byData, Pair: len(all) == 2})
		}
	}
	if len(slow) > len(all)/2 {
		return nil
	}
	slices.SortStableFunc(slow, func(a, b Slow) int { return cmp.Compare(own(b.Pace), own(a.Pace)) })
	return slow
}

// timed reports whether a step's time is known.
func timed(p Pace) bool { return p.Took > 0 }

// middle is the median of a figure over the ranks with a known step time; with two middle values,
// the lower one.
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

// String describes the delay: "at step 40, where the others are at 100; its last step was 5m0s
// ago", "a step takes 4.1 s, and the others' 1 s", "a step of 1.2 s waits 0.9 s for data, and the
// others' 0.1 s".
func (s Slow) String() string {
	others, possessive, are := "the others", "the others'", "are"
	if s.Pair {
		others, possessive, are = "the other", "the other's", "is"
	}
	seconds := func(d Seconds) string { return fmt.Sprintf("%.3g s", d.Duration().Round(time.Millisecond).Seconds()) }
	switch {
	case s.Own && s.ByData:
		return fmt.Sprintf("a step of %s waits %s for data, and %s %s", seconds(s.Took), seconds(s.Data), possessive,
			seconds(s.Others.Data))
	case s.Own:
		return fmt.Sprintf("the forward pass takes %s of a step's %s, and %s %s", seconds(s.Forward), seconds(s.Took),
			possessive, seconds(s.Others.Forward))
	case s.Took > slowTimes*s.Others.Took:
		return fmt.Sprintf("a step takes %s, and %s %s", seconds(s.Took), possessive, seconds(s.Others.Took))
	}
	words := fmt.Sprintf("at step %d, where %s %s at %d", s.Step, others, are, s.Others.Step)
	if idle := s.Idle.Duration(); idle > slowBehind && s.Idle > slowTimes*s.Others.Took {
		words += fmt.Sprintf("; its last step was %s ago", idle.Round(time.Second))
	}
	return words
}

// countPause bounds the age of a count of steps: a process reports its count once a second.
const countPause = 2 * time.Second

// Behind names the ranks that are behind the others when all have stopped making steps; empty:
// none.
func (e *Evidence) Behind(progress []Fact) string {
	ranks, step, others := behind(progress)
	if len(ranks) == 0 {
		return ""
	}
	is, theOthers, they := "is", "the others", "they are"
	if len(ranks) > 1 {
		is = "are"
	}
	if e.Ranks == 2 {
		theOthers, they = "the other", "it is"
	}
	words := RankWords(ranks)
	if node := e.folded().nodeOf(*e, ranks[0]); node != "" && len(ranks) == 1 {
		words += " of " + node
	}
	return fmt.Sprintf("%s %s behind %s: at step %d, and %s at %d", words, is, theOthers, step, they, others)
}

// behind lists the ranks that have made fewer steps than most, the last one first, with its step,
// and the step of the others. It compares only the processes' own counts: some ranks print fewer
// lines.
func behind(progress []Fact) (ranks []int, step, others int) {
	counted := slices.DeleteFunc(slices.Clone(progress),
		func(f Fact) bool { return f.Source != "probe" || As[*Progress](f) == nil })
	if len(counted) < 2 {
		return nil, 0, 0
	}
	slices.SortStableFunc(counted,
		func(a, b Fact) int { return cmp.Or(As[*Progress](a).Last-As[*Progress](b).Last, a.Rank-b.Rank) })
	front := As[*Progress](counted[len(counted)/2])
	made := front.Last - front.First
	for _, f := range counted[:len(counted)/2] {
		gap := front.Last - As[*Progress](f).Last
		if made <= 0 || gap <= 0 || front.For.Duration()/time.Duration(made)*time.Duration(gap) <= countPause {
			break
		}
		ranks = append(ranks, f.Rank)
	}
	return ranks, As[*Progress](counted[0]).Last, front.Last
}
