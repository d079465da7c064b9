package nodes

import (
	"iter"
	"time"
)

// A Head is node 0's side of a launch, as a state machine. It has no clock and no network: each
// method is told how much time has passed since the head began, and what is to be done is said
// to its owner. Its methods are called from one goroutine; Tick has to come once a second.
type Head struct {
	owner   headOwner
	launch  Launch
	welcome Welcome
	members []member // by number; node 0 is the head's own, and never among them
	attempt int      // the latest, -1 before the first
	awaits  Point
	final   *Final
	paused  bool
	beat    time.Duration // when the last one was sent
}

// A headOwner does what a Head says. It does not call the Head meanwhile.
type headOwner interface {
	// send sends a message on a link, and drop closes one, after what was sent on it.
	send(link int, m Message)
	drop(link int)
	// heard takes a message that counts: of this launch, this attempt, and not heard before.
	heard(node int, m Message)
	// reached takes that all nodes are where the head waited for them.
	reached(Point)
	// lost takes that a node takes no part in the attempt any more, and whether it said so itself.
	lost(node int, why string, left bool)
	// silent takes for how long nothing was heard of a node that may be lost.
	silent(node int, d time.Duration)
	// refused takes that a node cannot be part of the launch as it is.
	refused(Hello, Reject)
	// allPaused takes that the ranks of all nodes that can be reached are paused.
	allPaused()
	// superseded takes that the engine has started the launch again: this one is over.
	superseded(Hello)
}

// A member is what the head knows of a node.
type member struct {
	link    int // 0: none
	hello   Hello
	stage   Stage
	since   time.Duration // of the stage
	lost    bool          // it takes no part in the attempt any more
	refused bool          // it cannot be part of the launch as it is
	paused  bool          // it has said that its ranks are
	seq     int           // of the last event heard of the attempt
	heard   time.Duration // when anything was
	gone    time.Duration // when its link broke, while there is none
	told    time.Duration // when people were last told of its silence
	order   Message       // the last one, which it gets again after a lost connection
	stale   int           // the attempt of which it has ranks that are not to be, while it is Stopping
	grace   time.Duration // that its ranks have to end
}

// NewHead makes the head of a launch, which answers followers with welcome.
func NewHead(owner headOwner, l Launch, welcome Welcome) *Head {
	return &Head{owner: owner, launch: l, welcome: welcome, members: make([]member, l.Nodes), attempt: -1}
}

// Gather begins to wait for all nodes. Those that were lost count again once they are there.
func (h *Head) Gather() { h.await(AllThere) }

// Prepare tells all nodes of the plan that comes next, and each where it reaches the head.
func (h *Head) Prepare(now time.Duration, p Prepare, addr func(node int) string) {
	h.attempt = p.Launch.N
	for k := range h.followers() {
		m := &h.members[k]
		p.Launch.Meeting.Node, p.Launch.Meeting.Offset, p.Launch.Meeting.Addr = k, k*h.launch.Ranks, addr(k)
		m.seq, m.order = 0, p
		m.move(now, Preparing)
		h.send(k, p)
	}
	h.await(AllReady)
}

// Start has all nodes start their ranks.
func (h *Head) Start(now time.Duration) {
	s := Start{Attempt: h.attempt}
	for k := range h.followers() {
		m := &h.members[k]
		m.order = s
		m.move(now, Starting)
		h.send(k, s)
	}
	h.await(AllRunning)
}

// Stop ends the ranks of all nodes, or all ranks but some.
func (h *Head) Stop(now time.Duration, s Stop) {
	s.Attempt = h.attempt
	for k := range h.followers() {
		h.stop(now, k, s)
	}
	if len(s.Spare) > 0 {
		return
	}
	h.await(AllOver)
}

func (h *Head) stop(now time.Duration, k int, s Stop) {
	m := &h.members[k]
	if m.stage < Preparing || m.stage > Stopping {
		return
	}
	if len(s.Spare) == 0 {
		m.order, m.grace = s, s.Grace
		m.move(now, Stopping)
	}
	h.send(k, s)
}

// Pass tells all nodes that have ranks something that is soon over: Release, Stacks, Notice.
func (h *Head) Pass(m Message) {
	for k := range h.followers() {
		if h.members[k].stage == Running {
			h.send(k, m)
		}
	}
}

// Finish tells all nodes that the launch is over, and how it ended. Those that have not come
// yet would look for a head for long: they are given a little time.
func (h *Head) Finish(now time.Duration, f Final) {
	h.final = &f
	for k := 1; k < len(h.members); k++ {
		m := &h.members[k]
		m.since = now
		if m.link == 0 && (m.refused || m.hello.Inc != "") {
			m.stage = Left
		}
		h.send(k, f)
	}
	h.await(AllLeft)
}

// Missing are the nodes that are not there to start anything.
func (h *Head) Missing() []int {
	var missing []int
	for k := 1; k < len(h.members); k++ {
		if h.members[k].stage != Idle {
			missing = append(missing, k)
		}
	}
	return missing
}

// Host is the name of a node that has been there, for people; empty for one that has not.
func (h *Head) Host(node int) string { return h.members[node].hello.Host }

// followers are the nodes that take part.
func (h *Head) followers() iter.Seq[int] {
	return func(yield func(int) bool) {
		for k := 1; k < len(h.members); k++ {
			if !h.members[k].lost && !yield(k) {
				return
			}
		}
	}
}

// await begins to wait for all nodes to be at a point.
func (h *Head) await(p Point) {
	h.awaits = p
	h.look()
}

// look tells that all nodes are where the head waits for them. From AllRunning on it is
// waited for the ranks' end, whether they are stopped or end by themselves.
func (h *Head) look() {
	if h.awaits == Nowhere {
		return
	}
	for k := 1; k < len(h.members); k++ {
		if !h.members[k].at(h.awaits) {
			return
		}
	}
	reached := h.awaits
	h.awaits = Nowhere
	if reached == AllThere {
		for k := range h.members {
			h.members[k].lost = false
		}
	}
	h.owner.reached(reached)
	if reached == AllRunning {
		h.awaits = AllOver
		h.look()
	}
}

// at reports whether a node is at a point, or will not come there.
func (m *member) at(p Point) bool {
	switch p {
	case AllThere:
		return m.stage == Idle
	case AllReady:
		return m.lost || m.stage == Prepared
	case AllRunning:
		return m.lost || m.stage == Running || m.stage <= Idle // they have ended already
	case AllOver:
		return m.lost || m.stage <= Idle
	case AllLeft:
		return m.stage == Left
	}
	return false
}

func (m *member) move(now time.Duration, s Stage) { m.stage, m.since = s, now }

func (h *Head) send(k int, m Message) {
	if link := h.members[k].link; link != 0 {
		h.owner.send(link, m)
	}
}
