package nodes

import (
	"fmt"
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// A node of the launch has its credentials, and may still be wrong: a changed gpurun, or damaged memory. The
// head excludes a node that reports what it cannot know, or that sends without an end.

// Bounds of a node's messages for each of its ranks: how many it may send at once, and later in a second. A rank
// has some 1,200 findings at most, and reports of its process a few times in a second. Facts may stay in memory, and
// notes are shown to the user.
const (
	mostMessages, messagesPerSecond = 50_000, 2_000
	mostFacts, factsPerSecond       = 10_000, 10
	mostNotes, notesPerSecond       = 200, 0.1
)

// An allowance is a number of messages that grows with time.
type allowance struct {
	spent float64
	since time.Duration
}

// take takes one message from the allowance. It reports false if nothing is left.
func (a *allowance) take(now time.Duration, most, perSecond float64) bool {
	a.spent = max(a.spent-(now-a.since).Seconds()*perSecond, 0) + 1
	a.since = now
	return a.spent <= most
}

// deceives returns why a node's message cannot be true, or is one too many; empty if it may be.
func (h *Head) deceives(now time.Duration, node int, message Message) string {
	n, ranks := &h.nodes[node], float64(max(h.terms.Ranks, 1))
	if !n.messages.take(now, mostMessages*ranks, messagesPerSecond*ranks) {
		return "it sends messages without an end"
	}
	switch m := message.(type) {
	case Note:
		if !n.notes.take(now, mostNotes*ranks, notesPerSecond*ranks) {
			return "it sends notes without an end"
		}
	case Event:
		if !n.facts.take(now, mostFacts*ranks, factsPerSecond*ranks) {
			return "it reports facts without an end"
		}
		return h.forged(node, m.Fact)
	case Ready:
		if order, ok := n.order.(Prepare); ok && n.stage == Preparing && m.Attempt == h.attempt && m.Digest != order.Digest {
			return "the digest of its command is not the one that it was ordered to start"
		}
		return h.forged(node, m.Facts...)
	case Alive:
		if why := h.forged(node, m.Progress...); why != "" {
			return why
		}
		for rank := range m.Signs {
			if !h.owns(node, rank) {
				return foreignRank(rank)
			}
		}
		for _, sample := range m.Samples {
			if !h.owns(node, sample.Rank) {
				return foreignRank(sample.Rank)
			}
		}
	}
	return ""
}

// forged returns why a node cannot know one of the facts; empty if it may.
func (h *Head) forged(node int, facts ...strategy.Fact) string {
	for _, f := range facts {
		switch {
		case f.Rank != -1 && !h.owns(node, f.Rank):
			return foreignRank(f.Rank)
		case f.Lost != nil || f.Nodes != nil:
			return "it reports which nodes take part, which only node 0 knows"
		}
	}
	return ""
}

func foreignRank(rank int) string {
	return fmt.Sprintf("it reports about rank %d, which is not one of its ranks", rank)
}

// owns reports whether a rank is one of a node's.
func (h *Head) owns(node, rank int) bool {
	return rank >= 0 && h.terms.Ranks > 0 && rank/h.terms.Ranks == node
}

// expel excludes a node from the launch for good, and names the reason to it and to the user.
func (h *Head) expel(now time.Duration, node int, why string) {
	n := &h.nodes[node]
	link, reject := n.link, Reject{Code: strategy.CodeRetry, Why: "it was excluded: " + why}
	n.expelled = n.hello.Inc
	h.lose(now, node, reject.Why, false)
	h.owner.send(link, reject)
	h.owner.drop(link)
	h.unlink(now, n)
	n.refused = true
	h.owner.refused(n.hello, reject)
}
