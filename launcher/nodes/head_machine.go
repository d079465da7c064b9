package nodes

import (
	"iter"
	"time"
)

// A NodeStage is a node's progress in an attempt.
type NodeStage int

// The stages, in their order.
const (
	Absent    NodeStage = iota
	Idle                // no rank of it runs
	Preparing           // it has a plan
	Prepared            // its ranks can be started
	Starting            // the head has ordered it to start its ranks
	Running
	Stopping
	Left // it has the verdict
)

// A Point is a state of all nodes that the head can wait for.
type Point int

// The points of an attempt. A lost node is awaited for the first only.
const (
	Nowhere    Point = iota
	AllThere         // all nodes have joined, and none has running ranks
	AllReady         // all nodes can start their ranks
	AllRunning       // the ranks of all nodes run
	AllOver          // no rank of the attempt runs any more
	AllLeft          // all nodes have the verdict
)

// A headMachine is node 0's state machine for a launch, without clock and network: now is the time since the head
// began, and the owner carries out the head's actions. Its methods must be called from one goroutine, and
// Tick once a second.
type headMachine struct {
	owner     headOwner
	agreement Agreement
	welcome   Welcome
	nodes     []nodeState // by number; node 0 is the head's own and unused
	attempt   int         // the latest, -1 before the first
	awaits    Point
	final     *Final
	paused    bool
	beat      time.Duration // time of the head's last sign of life
	ticked    time.Duration // time of the last Tick
}

// A headOwner carries out the actions of a headMachine. It must not call the headMachine meanwhile.
type headOwner interface {
	// send sends a message on a link. drop closes a link, after the messages sent on it.
	send(link int, m Message)
	drop(link int)
	// received takes each message of this launch and this attempt once.
	received(node int, m Message)
	// reached reports that all nodes are at the point that the head waited for.
	reached(Point)
	// lost reports that a node takes no part in the attempt any more. left: the node itself reported that it
	// leaves.
	lost(node int, why string, left bool)
	// silent reports how long a node that may be lost has been silent.
	silent(node int, d time.Duration)
	// refused reports a node that cannot be part of the launch.
	refused(Hello, Reject)
	// superseded reports that the engine has started the launch again, so that this one is over.
	superseded(Hello)
}

// A nodeState is the head's view of a node.
type nodeState struct {
	link    int // 0 for none
	hello   Hello
	stage   NodeStage
	since   time.Duration // start of the stage
	lost    bool          // it takes no part in the attempt any more
	refused bool          // it cannot be part of the launch
	seq     int           // of the last event of the attempt
	heard   time.Duration // time of its last message
	gone    time.Duration // when its link broke, while it has none
	warned  time.Duration // when people were last warned of its silence
	order   Message       // last order, sent again after a lost connection
	stale   int           // the attempt whose ranks it must stop, while it is Stopping
	grace   time.Duration // grace of its ranks
}

// newHeadMachine makes the head of a launch, which accepts followers with welcome.
func newHeadMachine(owner headOwner, t Agreement, welcome Welcome) *headMachine {
	return &headMachine{owner: owner, agreement: t, welcome: welcome, nodes: make([]nodeState, t.Nodes), attempt: -1}
}

// Gather begins to wait for all nodes. Lost nodes count again once they are back.
func (h *headMachine) Gather() { h.await(AllThere) }

// Prepare sends each node the next plan, and the address at which it reaches the head.
func (h *headMachine) Prepare(now time.Duration, p Prepare, addr func(node int) string) {
	h.attempt = p.Launch.N
	for k, n := range h.participants() {
		p.Launch.Meeting.Node, p.Launch.Meeting.Offset, p.Launch.Meeting.Addr = k, k*h.agreement.Ranks, addr(k)
		n.seq = 0
		h.order(now, n, Preparing, p)
	}
	h.await(AllReady)
}

// Start orders all nodes to start their ranks.
func (h *headMachine) Start(now time.Duration) {
	for _, n := range h.participants() {
		h.order(now, n, Starting, Start{Attempt: h.attempt})
	}
	h.await(AllRunning)
}

// Stop stops the ranks of all nodes, except those in s.Spare.
func (h *headMachine) Stop(now time.Duration, s Stop) {
	s.Attempt = h.attempt
	for _, n := range h.participants() {
		switch {
		case n.stage < Preparing || n.stage > Stopping:
		case len(s.Spare) > 0:
			h.send(n, s)
		default:
			n.grace = s.Grace
			h.order(now, n, Stopping, s)
		}
	}
	if len(s.Spare) == 0 {
		h.await(AllOver)
	}
}

// Broadcast sends Release, Stacks or Notice to all nodes with ranks. The message is not repeated after a lost
// connection.
func (h *headMachine) Broadcast(m Message) {
	for _, n := range h.participants() {
		if n.stage == Running {
			h.send(n, m)
		}
	}
}

// Finish sends all nodes the end of the launch. It waits a little for nodes that have not joined yet, since
// they would look for a head for long.
func (h *headMachine) Finish(now time.Duration, f Final) {
	h.final = &f
	for _, n := range h.others() {
		n.since = now
		if n.link == 0 && (n.refused || n.hello.Process != "") {
			n.stage = Left
		}
		h.send(n, f)
	}
	h.await(AllLeft)
}

// Missing returns the nodes that are not ready for an attempt.
func (h *headMachine) Missing() (missing []int) {
	for k, n := range h.others() {
		if n.stage != Idle {
			missing = append(missing, k)
		}
	}
	return missing
}

// Host returns a node's name for messages, empty before it has joined.
func (h *headMachine) Host(node int) string { return h.nodes[node].hello.Host }

// others returns all nodes but node 0.
func (h *headMachine) others() iter.Seq2[int, *nodeState] {
	return func(yield func(int, *nodeState) bool) {
		for k := 1; k < len(h.nodes); k++ {
			if !yield(k, &h.nodes[k]) {
				return
			}
		}
	}
}

// participants returns the other nodes that are not lost.
func (h *headMachine) participants() iter.Seq2[int, *nodeState] {
	return func(yield func(int, *nodeState) bool) {
		for k, n := range h.others() {
			if !n.lost && !yield(k, n) {
				return
			}
		}
	}
}

func (h *headMachine) await(p Point) {
	h.awaits = p
	h.check()
}

// check reports that all nodes are at the point that the head waits for. After AllRunning the head
// waits for the ranks' end, whether they are stopped or end by themselves.
func (h *headMachine) check() {
	if h.awaits == Nowhere {
		return
	}
	for _, n := range h.others() {
		if !n.at(h.awaits) {
			return
		}
	}
	reached := h.awaits
	h.awaits = Nowhere
	if reached == AllThere {
		for _, n := range h.others() {
			n.lost = false
		}
	}
	h.owner.reached(reached)
	if reached == AllRunning {
		h.await(AllOver)
	}
}

// at reports whether a node is at a point, or will never be.
func (n *nodeState) at(p Point) bool {
	switch p {
	case AllThere:
		return n.stage == Idle
	case AllReady:
		return n.lost || n.stage == Prepared
	case AllRunning:
		return n.lost || n.stage == Running || n.stage <= Idle // Idle: they have ended already
	case AllOver:
		return n.lost || n.stage <= Idle
	case AllLeft:
		return n.stage == Left
	}
	return false
}

func (n *nodeState) move(now time.Duration, s NodeStage) { n.stage, n.since = s, now }

// order moves a node to a stage with a message, which is repeated after a lost connection.
func (h *headMachine) order(now time.Duration, n *nodeState, s NodeStage, m Message) {
	n.order = m
	n.move(now, s)
	h.send(n, m)
}

func (h *headMachine) send(n *nodeState, m Message) {
	if n.link != 0 {
		h.owner.send(n.link, m)
	}
}
