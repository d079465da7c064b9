package strategy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/strategy/cause"
)

// A StallRule is the time without a step after which a job counts as hanging.
type StallRule struct {
	// After is that time, from the attempt's start or the last step of any rank. 0: ten times the
	// longest step, and at least ten minutes, after three steps were made. Then any output counts
	// as a step, because an evaluation makes none.
	After Seconds `json:"after_seconds,omitempty"`
}

// The rule if After is 0.
const (
	stallSteps = 3
	stallTimes = 10
	leastStall = 10 * time.Minute
)

// A Stall records that all ranks were stopped because none made a step.
type Stall struct {
	For Seconds `json:"for_seconds"`
}

// A Stack is the position of a process in its code when its job had stalled.
type Stack struct {
	PID int `json:"pid"`
	// Frames are those of the main thread, the innermost first. A process that reported none has
	// a State: "stopped".
	Frames  []cause.StackFrame `json:"frames"`
	Threads int                `json:"threads,omitempty"` // of the process
	State   string             `json:"state,omitempty"`
}

// Calls lists the innermost calls in one line: "train.py:41 in load < train.py:60 in main".
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

// Watched lists the ranks whose signs of life should be added before Verdict is called.
func (d *Detector) Watched() []int {
	var ranks []int
	for _, i := range d.suspects() {
		if rank := d.evidence.folded().findings[i].rank; !slices.Contains(ranks, rank) {
			ranks = append(ranks, rank)
		}
	}
	if (d.evidence.Stalls != nil || d.unfit) && !slices.Contains(ranks, 0) {
		ranks = append(ranks, 0) // each sign counts the steps of all ranks
	}
	return ranks
}

// stalled reports whether no rank has made a step for too long, and otherwise sets the time of
// the next check.
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
		sign := As[*Sign](c.facts[i])
		last, longest, steps = latest(latest(last, sign.Others), sign.Awake), max(longest,
			sign.Longest.Duration()), max(steps, sign.Steps)
		if patience == 0 {
			last = latest(last, sign.Anyone)
		}
	}
	for _, i := range c.exits {
		last = latest(last, c.facts[i].Time)
	}
	for _, a := range d.asks {
		last = latest(last, a.until)
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

// waits is the innermost frame in which a rank waits for others; nil: none.
func (s *Stack) waits() *cause.StackFrame {
	const near = 8 // frames; further out may be a training loop of torch itself
	for i := range s.Frames[:min(near, len(s.Frames))] {
		if s.Frames[i].Waits() {
			return &s.Frames[i]
		}
	}
	return nil
}

// own is the innermost frame outside of libraries, or else the innermost.
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

// place is the position of the process: "at train.py:41 in load", "waiting at train.py:52 in
// step, in all_reduce".
func (s *Stack) place() string {
	own, f := s.own(), s.waits()
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

// absent lists the ranks that the others wait for: those outside a collective while others are in
// one, or else those at another place than most.
func (c *fold) absent() []int {
	ranks := slices.Sorted(maps.Keys(c.stacks))
	if len(ranks) == 1 {
		return ranks
	}
	var away []int
	places := map[cause.StackFrame][]int{}
	for _, rank := range ranks {
		s := As[*Stack](c.facts[c.stacks[rank]])
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

// awaitedFirst lists the ranks with a stack, the ranks that the others wait for first.
func (c *fold) awaitedFirst() []int {
	absent := c.absent()
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(c.stacks)), func(r int) bool { return slices.Contains(absent, r) })
	return append(absent, others...)
}

// whoWaits lists the position of each rank, the ranks that the others wait for first: "rank 1 at
// train.py:41 in load; ranks 0, 2–3 waiting at train.py:52 in step, in all_reduce".
func (c *fold) whoWaits() string {
	var places []string
	ranks := map[string][]int{}
	for _, rank := range c.awaitedFirst() {
		place := As[*Stack](c.facts[c.stacks[rank]]).place()
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

// awaited lists the ranks that the others wait for: by their stacks, or else by their steps.
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

// hangs is the candidate for a stall.
func (c *fold) hangs() (candidate, bool) {
	i := slices.IndexFunc(c.facts, func(f Fact) bool { return As[*Stall](f) != nil })
	if i < 0 {
		return candidate{}, false
	}
	h := candidate{fact: i, code: cause.Hang, tier: tierCause, rank: -1}
	if away := c.awaited(); len(away) > 0 {
		h.rank = away[0]
	}
	return h, true
}

// stackFacts lists the facts with the ranks' stacks, those that the others wait for first.
func (c *fold) stackFacts() []int {
	const most = 16 // lines of evidence
	var all []int
	for _, rank := range c.awaitedFirst() {
		all = append(all, c.stacks[rank])
	}
	return all[:min(most, len(all))]
}
