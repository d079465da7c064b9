package nodes

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
)

// A jointAttempt is the running ranks of all nodes.
type jointAttempt struct {
	head  *Head
	local launcher.Attempt
	out   chan strategy.Fact
	news  chan struct{} // has an element while there are facts
	over  chan struct{} // closed after the last fact of the other nodes' ranks

	mu       sync.Mutex
	facts    []strategy.Fact       // facts of the other nodes, not yet delivered
	signs    map[int]strategy.Sign // latest signs of the other nodes' ranks
	nodes    map[int]strategy.Sign // one sign of each of these nodes, with figures of all its ranks
	progress map[int]strategy.Fact // latest step by rank
	awake    time.Time             // end of the last pause
}

func newAttempt(l *Head, local launcher.Attempt, facts []strategy.Fact) *jointAttempt {
	return &jointAttempt{
		head: l, local: local, facts: facts,
		out: make(chan strategy.Fact), news: make(chan struct{}, 1), over: make(chan struct{}),
		signs: map[int]strategy.Sign{}, nodes: map[int]strategy.Sign{}, progress: map[int]strategy.Fact{},
	}
}

// Facts returns the channel with the observations of all nodes.
func (a *jointAttempt) Facts() <-chan strategy.Fact { return a.out }

// add queues a fact of another node. It does not wait.
func (a *jointAttempt) add(f strategy.Fact) {
	a.mu.Lock()
	a.facts = append(a.facts, f)
	a.mu.Unlock()
	select {
	case a.news <- struct{}{}:
	default:
	}
}

func (a *jointAttempt) take() (facts []strategy.Fact) {
	a.mu.Lock()
	defer a.mu.Unlock()
	facts, a.facts = a.facts, nil
	return facts
}

// merge delivers the facts of all nodes until no node has a rank left, or the Head is closed.
func (a *jointAttempt) merge() {
	defer close(a.out)
	facts := a.take()
	for local, over := a.local.Facts(), a.over; ; {
		for _, f := range facts {
			select {
			case a.out <- f:
			case <-a.head.done.Done():
			}
		}
		facts = nil
		switch {
		case a.head.done.Err() != nil:
			go drain(a.local.Facts()) // until the process ends: the Head does not wait for ranks
			return
		case local == nil && over == nil:
			return
		}
		select {
		case f, open := <-local:
			if facts = []strategy.Fact{f}; !open {
				local, facts = nil, nil
			}
		case <-a.news:
			facts = a.take()
		case <-over:
			over, facts = nil, a.take()
		case <-a.head.done.Done():
		}
	}
}

// alive takes in the latest signs of a node's ranks.
func (a *jointAttempt) alive(node int, c *clockOffset, m Alive) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for rank, sign := range m.Signs {
		a.signs[rank] = c.sign(sign)
		a.nodes[node] = a.signs[rank]
	}
	for _, f := range m.Progress {
		a.progress[f.Rank] = c.fact(f)
	}
}

// lose emits the loss of a node as a fact.
func (a *jointAttempt) lose(lost strategy.Lost) {
	per := a.head.opts.Ranks
	for k := range per {
		lost.Ranks = append(lost.Ranks, lost.Node*per+k)
	}
	a.add(strategy.Fact{Time: time.Now(), Rank: -1, Source: "gpurun", Content: &lost})
}

// Stop ends the ranks of all nodes.
func (a *jointAttempt) Stop(signal int, grace time.Duration) {
	a.order(Stop{Signal: signal, Grace: grace})
	a.local.Stop(signal, grace)
	select {
	case <-a.over:
	case <-a.head.done.Done():
	}
}

// StopPeers sends a signal to all ranks but those given.
func (a *jointAttempt) StopPeers(signal int, of []int) {
	a.order(Stop{Signal: signal, Spare: of})
	a.local.StopPeers(signal, of)
}

func (a *jointAttempt) order(s Stop) {
	a.head.own(func() {
		if a.head.running == a {
			a.head.machine.Stop(a.head.now(), s)
		}
	})
}

func (a *jointAttempt) broadcast(m Message) {
	a.head.own(func() { a.head.machine.Broadcast(m) })
}

// Release resumes the ranks that wait before their first optimizer step.
func (a *jointAttempt) Release() {
	a.broadcast(Release{})
	a.local.Release()
}

// Stacks requests the stack of each rank. The stacks of other nodes arrive later, as facts.
func (a *jointAttempt) Stacks() {
	a.broadcast(Stacks{})
	a.local.Stacks()
}

// LastSign returns the latest sign of a rank, with the figures of all ranks on all nodes.
func (a *jointAttempt) LastSign(rank int) strategy.Sign {
	own := a.local.LastSign(rank) // a rank of another node gets the figures of the head's ranks
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

// Progress returns the latest step of each rank.
func (a *jointAttempt) Progress() []strategy.Fact {
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
