package nodes

import "time"

// An Effect is what the owner of a state machine has to do next.
type Effect interface{ effect() }

type (
	// Send sends a message: the head's on a link, a follower's on its only one.
	Send struct {
		Link    int
		Message Message
	}
	// Drop closes a link, after what was sent on it.
	Drop struct{ Link int }
	// Heard is a message that counts: of this launch, this attempt, and not heard before.
	Heard struct {
		Node    int
		Message Message
	}
	// Reached says that all nodes are where the head waited for them.
	Reached struct{ Point Point }
	// Lost says that a node takes no part in the attempt any more.
	Lost struct {
		Node int
		Why  string
		Left bool // it said so itself
	}
	// Silent says for how long nothing was heard of a node that may be lost.
	Silent struct {
		Node int
		For  time.Duration
	}
	// Refused says that a node cannot be part of the launch as it is. Waiting does not mend
	// that.
	Refused struct {
		Node   int
		Host   string
		Reject Reject
	}
	// AllPaused says that the ranks of all nodes that can be reached are paused.
	AllPaused struct{}
	// Superseded says that the engine has started the launch again: this one is over.
	Superseded struct{ Node, Restart int }

	// Do is an order of the head's that a follower has to carry out.
	Do struct{ Message Message }
	// Tell asks a follower for a Beat.
	Tell struct{}
	// Abandon has a follower end its ranks, since nobody leads them any more.
	Abandon struct{ Why string }
	// Leave ends a follower, once its ranks are gone.
	Leave struct {
		Code   int
		Reason string
	}
)

func (Send) effect()       {}
func (Drop) effect()       {}
func (Heard) effect()      {}
func (Reached) effect()    {}
func (Lost) effect()       {}
func (Silent) effect()     {}
func (Refused) effect()    {}
func (AllPaused) effect()  {}
func (Superseded) effect() {}
func (Do) effect()         {}
func (Tell) effect()       {}
func (Abandon) effect()    {}
func (Leave) effect()      {}

// A Stage is how far a node is in an attempt.
type Stage int

// The stages, in their order.
const (
	Absent    Stage = iota
	Idle            // none of its ranks run
	Preparing       // it was told of a plan
	Prepared        // its ranks could be started
	Starting        // they were to be
	Running
	Stopping
	Left // it knows how the launch ended
)

// A Point is what the head waits for all nodes to come to.
type Point int

// The points of an attempt. A node that is lost counts for the first only.
const (
	Nowhere    Point = iota
	AllThere         // with no ranks that run
	AllReady         // to start their ranks
	AllRunning       // their ranks
	AllOver          // no rank of the attempt runs any more
	AllLeft          // nobody is there to be told any more
)
