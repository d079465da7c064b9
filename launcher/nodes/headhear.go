package nodes

import (
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// Hear takes a message that came on a link from the node that the link's credentials name.
// Links are numbered from 1, and no number is used twice.
func (h *Head) Hear(now time.Duration, link, node int, message Message) {
	if hello, ok := message.(Hello); ok {
		h.greet(now, link, node, hello)
		h.look()
		return
	}
	if node < 1 || node >= len(h.members) || h.members[node].link != link {
		return // it has not said hello, or another life of it has
	}
	m := &h.members[node]
	m.heard, m.told = now, now
	if h.counts(now, node, message) {
		h.owner.heard(node, message)
	}
	h.look()
}

// counts moves a node on by what it says, and reports whether that is news: what belongs
// to an attempt before, or was heard already, is not.
func (h *Head) counts(now time.Duration, node int, message Message) bool {
	m := &h.members[node]
	switch said := message.(type) {
	case Ready:
		return h.step(now, m, said.Attempt, Preparing, Prepared)
	case NotReady:
		return h.step(now, m, said.Attempt, Preparing, Idle) || h.step(now, m, said.Attempt, Starting, Idle)
	case Started:
		return h.step(now, m, said.Attempt, Starting, Running)
	case Event:
		return h.event(node, said)
	case Stopped:
		return h.over(now, m, said)
	case Alive:
		return said.Attempt == h.attempt && !m.lost
	case Paused:
		m.paused = true
		h.lookPaused()
	case Note:
		return true
	case Leaving:
		h.lose(now, node, said.Why, true)
		if m.stage == Idle {
			m.move(now, Absent)
			h.comesNoMore(node, said.Why)
		}
	case Bye:
		if h.final != nil {
			m.move(now, Left)
		}
	}
	return false
}

// step takes a node from one stage to the next.
func (h *Head) step(now time.Duration, m *member, attempt int, from, to Stage) bool {
	if attempt != h.attempt || m.lost || m.stage != from {
		return false
	}
	m.move(now, to)
	return true
}

// event takes the next event of a node's ranks. One that is not the next was lost on the
// way; it comes again.
func (h *Head) event(node int, e Event) bool {
	m := &h.members[node]
	if e.Attempt != h.attempt || m.lost || e.Seq > m.seq+1 {
		return false
	}
	news := e.Seq == m.seq+1
	if news {
		m.seq = e.Seq
	}
	h.send(node, Ack{Attempt: h.attempt, Seq: m.seq})
	return news
}

// over takes that none of a node's ranks run any more. What they told last may still be on
// its way.
func (h *Head) over(now time.Duration, m *member, s Stopped) bool {
	switch {
	case m.stage == Stopping && m.lost && s.Attempt == m.stale:
		m.move(now, Idle) // it may take part in what comes next
		return false
	case s.Attempt != h.attempt || m.lost || m.stage < Preparing || m.stage > Stopping || s.Seq > m.seq:
		return false
	}
	m.move(now, Idle)
	return true
}

// greet takes a node into the launch, or says why not.
func (h *Head) greet(now time.Duration, link, node int, hello Hello) {
	reject := h.launch.refuses(hello)
	switch {
	case reject == nil && hello.Node != node:
		reject = &Reject{Code: strategy.CodeUsage, Why: "it says that it is another node than its credentials do"}
	case hello.Restart > h.launch.Restart && hello.Run == h.launch.Run:
		reject = &Reject{Code: strategy.CodeRetry, Why: "the head is of an earlier start of the job, and ends"}
		h.owner.superseded(hello)
	case reject == nil && h.lives(now, node, hello):
		reject = &Reject{Code: strategy.CodeRetry, Why: "another gpurun is this node already, and its ranks run"}
	}
	if reject != nil {
		h.owner.send(link, *reject)
		h.owner.drop(link)
		if (reject.Code == strategy.CodeUsage || hello.Unable != nil) && h.members[node].stage == Absent {
			h.members[node].refused = true
			h.owner.refused(hello, *reject)
			if h.final != nil {
				h.members[node].move(now, Left)
			}
		}
		return
	}
	m := &h.members[node]
	again := m.hello.Inc == hello.Inc
	if m.link != 0 && m.link != link {
		if !again {
			h.send(node, Reject{Code: strategy.CodeRetry, Why: "another gpurun has taken its place"})
		}
		h.owner.drop(m.link)
		h.unlink(now, node)
	}
	if !again {
		h.replace(now, node)
	}
	m.link, m.hello, m.heard, m.told = link, hello, now, now
	h.resume(now, node)
}

// lives reports whether another gpurun than the one that says hello is a node, and has ranks
// and was heard of a moment ago.
func (h *Head) lives(now time.Duration, node int, hello Hello) bool {
	m := &h.members[node]
	return m.link != 0 && m.hello.Inc != hello.Inc && m.stage > Idle && now-m.heard <= 2*Beat
}

// replace gives up what another life of a node had of the attempt: its ranks are gone with
// it.
func (h *Head) replace(now time.Duration, node int) {
	m := &h.members[node]
	m.link = 0
	h.lose(now, node, "its gpurun was started again", false)
	m.move(now, Absent)
	m.order = nil
}

// resume welcomes a node, and tells it again what it was told last.
func (h *Head) resume(now time.Duration, node int) {
	m := &h.members[node]
	welcome := h.welcome
	welcome.Seq = m.seq
	h.send(node, welcome)
	if h.paused {
		h.send(node, Pause{})
	}
	has := m.hello.Attempt >= 0 // begun an attempt
	switch {
	case h.final != nil:
		m.move(now, Idle)
		h.send(node, *h.final)
	case has && (m.lost || m.hello.Attempt != h.attempt || m.stage < Preparing):
		h.clear(now, node, m.hello.Attempt)
	case m.stage == Absent, m.lost && !has:
		m.move(now, Idle)
	case m.order != nil && m.stage >= Preparing:
		h.send(node, m.order)
	}
}
