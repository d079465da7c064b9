package nodes

import (
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// Receive takes in a message. node is the number in the credentials of its link. Links are numbered from 1,
// and no number is used twice.
func (h *headMachine) Receive(now time.Duration, link, node int, message Message) {
	if hello, ok := message.(Hello); ok {
		h.join(now, link, node, hello)
		h.check()
		return
	}
	if node < 1 || node >= len(h.nodes) || h.nodes[node].link != link {
		return // before hello, or replaced by a newer gpurun of this node
	}
	n := &h.nodes[node]
	n.heard, n.warned = now, now
	if h.update(now, node, message) {
		h.owner.received(node, message)
	}
	h.check()
}

// update changes a node's stage by its message. It reports false for a repetition and for a message of an
// earlier attempt.
func (h *headMachine) update(now time.Duration, node int, message Message) bool {
	n := &h.nodes[node]
	switch m := message.(type) {
	case Ready:
		return h.step(now, n, m.Attempt, Preparing, Prepared)
	case NotReady:
		return h.step(now, n, m.Attempt, Preparing, Idle) || h.step(now, n, m.Attempt, Starting, Idle)
	case Started:
		return h.step(now, n, m.Attempt, Starting, Running)
	case Event:
		return h.event(n, m)
	case Stopped:
		return h.over(now, n, m)
	case Alive:
		return m.Attempt == h.attempt && !n.lost
	case Note:
		return true
	case Leaving:
		h.lose(now, node, m.Why, true)
		if n.stage == Idle {
			n.move(now, Absent)
			h.noReturn(node, m.Why)
		}
	case Bye:
		if h.final != nil {
			n.move(now, Left)
		}
	}
	return false
}

// step takes a node from one stage to the next.
func (h *headMachine) step(now time.Duration, n *nodeState, attempt int, from, to NodeStage) bool {
	if attempt != h.attempt || n.lost || n.stage != from {
		return false
	}
	n.move(now, to)
	return true
}

// event takes in the next event of a node's ranks. After a gap it waits until the node repeats the lost
// event.
func (h *headMachine) event(n *nodeState, e Event) bool {
	if e.Attempt != h.attempt || n.lost || e.Seq > n.seq+1 {
		return false
	}
	news := e.Seq == n.seq+1
	if news {
		n.seq = e.Seq
	}
	h.send(n, Ack{Attempt: h.attempt, Seq: n.seq})
	return news
}

// over takes in the end of a node's ranks, once all their events have arrived.
func (h *headMachine) over(now time.Duration, n *nodeState, s Stopped) bool {
	switch {
	case n.stage == Stopping && n.lost && s.Attempt == n.stale:
		n.move(now, Idle) // it may take part in the next attempt
		return false
	case s.Attempt != h.attempt || n.lost || n.stage < Preparing || n.stage > Stopping || s.Seq > n.seq:
		return false
	}
	n.move(now, Idle)
	return true
}

// join accepts a node, or rejects it with the reason.
func (h *headMachine) join(now time.Duration, link, node int, hello Hello) {
	n := &h.nodes[node]
	again := n.hello.Process == hello.Process
	reject := h.agreement.refuses(hello)
	switch {
	case hello.Restart > h.agreement.Restart && hello.Run == h.agreement.Run:
		reject = &Reject{Code: strategy.CodeRetry, Why: "node 0 is of an earlier start of the job, and ends"}
		h.owner.superseded(hello)
	case reject == nil && !again && n.link != 0 && n.stage > Idle && now-n.heard <= 2*Beat:
		reject = &Reject{Code: strategy.CodeRetry, Why: "another gpurun is this node already, and its ranks run"}
	}
	if reject != nil {
		h.owner.send(link, *reject)
		h.owner.drop(link)
		if (reject.Code == strategy.CodeUsage || hello.Unable != nil) && n.stage == Absent {
			n.refused = true
			h.owner.refused(hello, *reject)
			if h.final != nil {
				n.move(now, Left)
			}
		}
		return
	}
	if n.link != 0 && n.link != link {
		if !again {
			h.send(n, Reject{Code: strategy.CodeRetry, Why: "another gpurun has taken its place"})
		}
		h.owner.drop(n.link)
		h.unlink(now, n)
	}
	if !again { // the earlier gpurun's ranks are gone too
		n.link = 0
		h.lose(now, node, "its gpurun was started again", false)
		n.move(now, Absent)
		n.order = nil
	}
	n.link, n.hello, n.heard, n.warned = link, hello, now, now
	h.resume(now, n)
}

// resume welcomes a node, and repeats the last order to it.
func (h *headMachine) resume(now time.Duration, n *nodeState) {
	welcome := h.welcome
	welcome.Seq = n.seq
	h.send(n, welcome)
	if h.paused {
		h.send(n, Pause{})
	}
	has := n.hello.Attempt >= 0 // begun an attempt
	switch {
	case h.final != nil:
		n.move(now, Idle)
		h.send(n, *h.final)
	case has && (n.lost || n.hello.Attempt != h.attempt || n.stage < Preparing):
		h.clear(now, n, n.hello.Attempt)
	case n.stage == Absent, n.lost && !has:
		n.move(now, Idle)
	case n.order != nil && n.stage >= Preparing:
		h.send(n, n.order)
	}
}
