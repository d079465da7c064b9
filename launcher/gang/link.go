package gang

import "context"

// A Link is a connection between the head and a follower on which each is proved to be a
// node of the same launch.
type Link interface {
	// Peer is the other side's number, as its credentials say.
	Peer() int
	// Addr is this side's own address as the other side reaches it, without the port.
	Addr() string
	// Send queues a message, and does not wait for the network. An error means that the
	// connection is over, or that the other side takes nothing any more.
	Send(Message) error
	// Receive waits for the next message. Its error ends the connection.
	Receive(context.Context) (Message, error)
	// Close ends the connection once what was queued is sent, within a bound.
	Close() error
}

// Links are where followers come in.
type Links interface {
	// Accept waits for the next one.
	Accept(context.Context) (Link, error)
	// Close takes no more, and ends those that are there.
	Close() error
}

// A Dialer reaches the head.
type Dialer interface {
	// Dial makes one connection, or says why not: an error that is ErrRefused means that
	// nobody listens there although the machine answers.
	Dial(context.Context) (Link, error)
}

// A Mistake is a gpurun that says that it is a node of this launch, and cannot be one: it does
// not know what the nodes know each other by, or it is another head that does, Node 0. Addr is
// where it is. That it is no stranger is not proved but of a head.
type Mistake struct {
	Node int
	Addr string
}

// ErrMistrusted is why a head cannot be reached that is there: it knows another secret than
// this node.
var ErrMistrusted = mistrusted{}

type mistrusted struct{}

func (mistrusted) Error() string { return "node 0 is there, and has another secret than this node" }

// ErrRefused is why a head cannot be reached whose machine answers: its gpurun is not there.
var ErrRefused = refused{}

type refused struct{}

func (refused) Error() string { return "nobody listens there" }
