package strategy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/strategy/cause"
)

// A StallRule says how long a job may make no step before it counts as one that hangs.
type StallRule struct {
	// After is that time, from the attempt's start or the last step on any rank. 0: ten times
	// the longest step, and at least ten minutes, once three steps were made. Whatever a rank
	// writes counts as a step then: an evaluation makes none.
	After Seconds `json:"after_seconds,omitempty"`
}

// What a stall is where the rule leaves it open.
const (
	stallSteps = 3
	stallTimes = 10
	leastStall = 10 * time.Minute
)

// A Stall says that no rank made a step for so long that all were stopped for it.
type Stall struct {
	For Seconds `json:"for_seconds"`
}

// A Stack is where a process was when its job had stalled.
type Stack struct {
	PID int `json:"pid"`
	// Frames are those of the main thread, the innermost first. There are none of a process
	// that told nothing; then State says what it does: "stopped".
	Frames []cause.StackFrame `json:"frames"`
	// Threads is how many threads the process had.
	Threads int    `json:"threads,omitempty"`
	State   string `json:"state,omitempty"`
}

// Calls says the innermost calls in one line: "train.py:41 in load < train.py:60 in main".
func (s *Stack) Calls(most int) string {
	if len(s.Frames) == 0 {
		return s.place()
	}
	var words []string
	for _, f := range s.Frames[:min(most, len(s.Frames))] {
		words = append(words, f.String())
	}
	return strings.Join(words, " < ")
}

// Watched are the ranks of which a sign of life should be added before Verdict is asked.
func (d *Detector) Watched() []int {
	ranks := d.Suspects()
	if (d.evidence.Stalls != nil || d.unfit) && !slices.Contains(ranks, 0) {
		ranks = append(ranks, 0) // each sign tells of all ranks' steps
	}
	return ranks
}

// stalled reports whether no rank has made a step for too long, and else when to look again.
func (d *Detector) stalled(now time.Time) (Stop, bool) {
	rule := d.evidence.Stalls
	if rule == nil {
		return Stop{}, false
	}
	last, patience := latest(d.evidence.Started, d.woke), rule.After.Duration()
	c := d.evidence.folded()
	var longest time.Duration
	steps := 0
	for _, i := range c.signs {
		sign := c.facts[i].Sign
		last, longest, steps = latest(latest(last, sign.Others), sign.Awake), max(longest, sign.Longest.Duration()), max(steps, sign.Steps)
		if patience == 0 {
			last = latest(last, sign.Anyone)
		}
	}
	for _, i := range c.exits {
		last = latest(last, c.facts[i].Time)
	}
	if rule.After == 0 {
		if patience = max(leastStall, stallTimes*longest); steps < stallSteps {
			d.due = earlier(d.due, now.Add(patience))
			return Stop{}, false
		}
	}
	if silent := now.Sub(last); silent >= patience {
		return Stop{At: now, Reason: StopStalled, Rank: -1, For: Seconds(silent)}, true
	}
	d.due = earlier(d.due, last.Add(patience))
	return Stop{}, false
}

// waits is the innermost frame by which a rank waits for others, nil for none.
func (s *Stack) waits() *cause.StackFrame {
	const near = 8 // frames; further out a training loop of torch's own may stand
	for i := range s.Frames[:min(near, len(s.Frames))] {
		if s.Frames[i].Waits() {
			return &s.Frames[i]
		}
	}
	return nil
}

// own is the innermost frame outside of libraries, else the innermost.
func (s *Stack) own() cause.StackFrame {
	for _, f := range s.Frames {
		if !f.Library() {
			return f
		}
	}
	if len(s.Frames) == 0 {
		return cause.StackFrame{}
	}
	return s.Frames[0]
}

// absent are the ranks that do not do what the others wait for: those that are in no
// collective where others are, else those that are elsewhere than most. There are none where
// nobody stands out.
func (c *fold) absent() []int {
	ranks := c.stackRanks()
	if len(ranks) == 1 {
		return ranks
	}
	var away []int
	places := map[cause.StackFrame][]int{}
	for _, rank := range ranks {
		s := c.facts[c.stacks[rank]].Stack
		if s.waits() == nil {
			away = append(away, rank)
		}
		places[s.own()] = append(places[s.own()], rank)
	}
	if len(away) > 0 && len(away) < len(ranks) {
		return away
	}
	for _, most := range places {
		if 2*len(most) > len(ranks) && len(most) < len(ranks) {
			return slices.DeleteFunc(ranks, func(r int) bool { return slices.Contains(most, r) })
		}
	}
	return nil
}

func (c *fold) stackRanks() []int {
	var ranks []int
	for rank := range c.stacks {
		ranks = append(ranks, rank)
	}
	slices.Sort(ranks)
	return ranks
}

// awaitedFirst are the ranks that told where they are, those that the others wait for first.
func (c *fold) awaitedFirst() []int {
	absent := c.absent()
	return append(absent, slices.DeleteFunc(c.stackRanks(), func(r int) bool { return slices.Contains(absent, r) })...)
}

// whoWaits says where each rank is, those that the others wait for first: "rank 1 at
// train.py:41 in load; ranks 0, 2–3 waiting at train.py:52 in step, in all_reduce". It is empty
// where no rank told.
func (c *fold) whoWaits() string {
	var places []string
	ranks := map[string][]int{}
	for _, rank := range c.awaitedFirst() {
		place := c.facts[c.stacks[rank]].Stack.place()
		if ranks[place] == nil {
			places = append(places, place)
		}
		ranks[place] = append(ranks[place], rank)
	}
	for i, place := range places {
		places[i] = RankWords(ranks[place]) + " " + place
	}
	return strings.Join(places, "; ")
}

// place says where the process is: "at train.py:41 in load", "waiting at train.py:52 in
// step, in all_reduce".
func (s *Stack) place() string {
	own := s.own()
	f := s.waits()
	switch {
	case len(s.Frames) == 0:
		return "silent, " + cmp.Or(s.State, "ended")
	case f == nil:
		return "at " + own.String()
	case f.Function == own.Function:
		return "waiting at " + own.String()
	}
	return fmt.Sprintf("waiting at %s, in %s", own, f.Function)
}

// awaited are the ranks that the others wait for: by where they are, else by their steps.
func (c *fold) awaited() []int {
	if away := c.absent(); len(away) > 0 {
		return away
	}
	var progress []Fact
	for _, i := range c.progress {
		progress = append(progress, c.facts[i])
	}
	ranks, _, _ := behind(progress)
	return ranks
}

// hangs is the candidate that a stall is.
func (c *fold) hangs() (candidate, bool) {
	i := slices.IndexFunc(c.facts, func(f Fact) bool { return f.Stall != nil })
	if i < 0 {
		return candidate{}, false
	}
	h := candidate{fact: i, code: cause.Hang, tier: tierCause, rank: -1}
	if away := c.awaited(); len(away) > 0 {
		h.rank = away[0]
	}
	return h, true
}

// hung says who hangs, and where each rank was.
func (c *fold) hung(d *Diagnosis) {
	d.Ranks, d.Error = c.awaited(), c.whoWaits()
}

// stackFacts are the facts of where the ranks were, those that others wait for first.
func (c *fold) stackFacts() []int {
	const most = 16 // lines of evidence
	var all []int
	for _, rank := range c.awaitedFirst() {
		all = append(all, c.stacks[rank])
	}
	return all[:min(most, len(all))]
}
