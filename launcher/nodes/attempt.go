package nodes

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
)

// An attempt is the running ranks of all nodes.
type attempt struct {
	lead  *Lead
	local launcher.Attempt
	facts *queue // of the other nodes
	out   chan strategy.Fact
	over  chan struct{} // closed when no rank of another node runs any more

	mu       sync.Mutex
	signs    map[int]strategy.Sign // of the other nodes' ranks
	nodes    map[int]strategy.Sign // of each of these nodes one, which tells of all of its ranks
	progress map[int]strategy.Fact // by rank
	awake    time.Time             // when these ranks went on after a pause
}

func newAttempt(l *Lead, local launcher.Attempt, facts []strategy.Fact) *attempt {
	a := &attempt{
		lead: l, local: local, facts: newQueue(), out: make(chan strategy.Fact), over: make(chan struct{}),
		signs: map[int]strategy.Sign{}, nodes: map[int]strategy.Sign{}, progress: map[int]strategy.Fact{},
	}
	for _, f := range facts {
		a.facts.add(f)
	}
	return a
}

// Facts delivers what is observed on all nodes.
func (a *attempt) Facts() <-chan strategy.Fact { return a.out }

// merge passes on what the nodes see, until no rank is left on any. Where the Lead is closed
// before, nobody reads it any more.
func (a *attempt) merge() {
	defer close(a.out)
	local, last := a.local.Facts(), false
	for local != nil || !last {
		var facts []strategy.Fact
		select {
		case f, open := <-local:
			if !open {
				local = nil
				continue
			}
			facts = []strategy.Fact{f}
		case <-a.facts.news:
			facts, last = a.facts.take()
		case <-a.lead.done.Done():
		}
		for _, f := range facts {
			select {
			case a.out <- f:
			case <-a.lead.done.Done():
			}
		}
		if a.lead.done.Err() != nil {
			go drain(a.local.Facts()) // until the process ends: the Lead does not wait for ranks
			return
		}
	}
}

// alive takes what a node's ranks last let see of themselves; of other ranks it cannot know.
func (a *attempt) alive(node int, c *clock, m Alive) {
	a.mu.Lock()
	defer a.mu.Unlock()
	per := a.lead.opts.Launch.Ranks
	for rank, sign := range m.Signs {
		if rank/per != node {
			continue
		}
		a.signs[rank] = c.sign(sign)
		a.nodes[node] = a.signs[rank]
	}
	for _, f := range m.Progress {
		if f.Rank/per == node {
			a.progress[f.Rank] = c.fact(f)
		}
	}
}

// lose makes a fact of a node's loss.
func (a *attempt) lose(lost strategy.Lost) {
	per := a.lead.opts.Launch.Ranks
	for k := range per {
		lost.Ranks = append(lost.Ranks, lost.Node*per+k)
	}
	a.facts.add(strategy.Fact{Time: time.Now(), Rank: -1, Source: "gpurun", Lost: &lost})
}

// Stop ends the ranks of all nodes.
func (a *attempt) Stop(signal int, grace time.Duration) {
	a.order(Stop{Signal: signal, Grace: grace})
	a.local.Stop(signal, grace)
	select {
	case <-a.over:
	case <-a.lead.done.Done():
	}
}

// StopPeers sends a signal to all ranks but those given.
func (a *attempt) StopPeers(signal int, of []int) {
	a.order(Stop{Signal: signal, Spare: of})
	a.local.StopPeers(signal, of)
}

func (a *attempt) order(s Stop) {
	a.lead.own(func() {
		if a.lead.running == a {
			a.lead.head.Stop(a.lead.now(), s)
		}
	})
}

func (a *attempt) pass(m Message) {
	a.lead.own(func() { a.lead.head.Pass(m) })
}

// Release lets the ranks go on that wait before their first optimizer step.
func (a *attempt) Release() {
	a.pass(Release{})
	a.local.Release()
}

// Stacks has each rank tell where it is. Those of other nodes tell it on their way.
func (a *attempt) Stacks() {
	a.pass(Stacks{})
	a.local.Stacks()
}

// LastSign is what a rank last let see of itself, and what all ranks did of all nodes.
func (a *attempt) LastSign(rank int) strategy.Sign {
	own := a.local.LastSign(rank) // of another node's rank: what the head's own let see
	a.mu.Lock()
	defer a.mu.Unlock()
	sign, other := a.signs[rank]
	if !other {
		sign = own
	} else if a.awake.After(sign.Output) {
		sign.Output, sign.Awake = a.awake, a.awake
	}
	sign.Others, sign.Anyone, sign.Longest, sign.Steps = own.Others, own.Anyone, own.Longest, own.Steps
	for _, s := range a.nodes {
		sign.Others, sign.Anyone = later(sign.Others, s.Others), later(sign.Anyone, s.Anyone)
		sign.Longest, sign.Steps = max(sign.Longest, s.Longest), sign.Steps+s.Steps
	}
	return sign
}

// Progress says how far each rank has come.
func (a *attempt) Progress() []strategy.Fact {
	all := a.local.Progress()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, k := range slices.Sorted(maps.Keys(a.progress)) {
		all = append(all, a.progress[k])
	}
	return all
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
