package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gpurun/gpurun/launcher/gang"
)

const (
	// MaxMessage is how many bytes a message may have as JSON. A larger one ends the
	// connection, on either side.
	MaxMessage = 1 << 20

	mostQueued      = 4096    // messages that wait to be sent
	mostQueuedBytes = 4 << 20 // and what they weigh
	flush           = 5 * time.Second
)

var (
	errFull   = errors.New("the other side takes no messages any more")
	errClosed = errors.New("the connection is closed")
	errHungUp = errors.New("the other side has closed the connection")
)

// A stream is gRPC's, of either side.
type stream interface {
	SendMsg(any) error
	RecvMsg(any) error
}

// A link is one connection. Its reader and its writer are goroutines of whoever made it.
type link struct {
	peer int
	addr string
	cut  func() // ends the connection as it is

	ctx    context.Context // over with the connection, and why
	end    context.CancelCauseFunc
	in     chan gang.Message
	read   chan struct{} // closed when nothing more comes
	closed chan struct{} // by Close
	done   chan struct{} // all that was queued is sent, or never will be

	mu      sync.Mutex
	queue   [][]byte
	weight  int
	closing bool
	wake    chan struct{}
}

func newLink(peer int, addr string, cut func()) *link {
	l := &link{
		peer: peer, addr: addr, cut: cut, in: make(chan gang.Message), wake: make(chan struct{}, 1),
		read: make(chan struct{}), closed: make(chan struct{}), done: make(chan struct{}),
	}
	l.ctx, l.end = context.WithCancelCause(context.Background())
	return l
}

func (l *link) Peer() int    { return l.peer }
func (l *link) Addr() string { return l.addr }

// Send encodes a message and queues it. Where the other side does not take what is queued,
// the connection ends.
func (l *link) Send(m gang.Message) error {
	text, err := gang.Encode(m)
	if err != nil {
		return err
	}
	if len(text) > MaxMessage {
		err := fmt.Errorf("a message of %d bytes is too large to be sent (%T, at most %d)", len(text), m, MaxMessage)
		l.fail(err)
		return err
	}
	if err := l.enqueue(text); err != nil {
		return fmt.Errorf("send to node %d: %w", l.peer, err)
	}
	return nil
}

func (l *link) enqueue(text []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.ctx.Err() != nil:
		return context.Cause(l.ctx)
	case l.closing:
		return errClosed
	case len(l.queue) == mostQueued || l.weight+len(text) > mostQueuedBytes:
		l.fail(errFull)
		return errFull
	}
	l.queue, l.weight = append(l.queue, text), l.weight+len(text)
	l.awake()
	return nil
}

func (l *link) awake() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// dequeue takes all that is queued, and says whether nothing comes after it.
func (l *link) dequeue() (queue [][]byte, last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	queue, l.queue = l.queue, nil
	return queue, l.closing
}

func (l *link) sent(bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.weight -= bytes
}

// Receive also returns what came before the connection ended.
func (l *link) Receive(ctx context.Context) (gang.Message, error) {
	select {
	case m := <-l.in:
		return m, nil
	case <-l.read:
		return nil, fmt.Errorf("hear node %d: %w", l.peer, context.Cause(l.ctx))
	case <-l.closed:
		return nil, errClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (l *link) Close() error {
	l.hangUp()
	over := time.NewTimer(flush)
	defer over.Stop()
	select {
	case <-l.done:
	case <-over.C:
		l.fail(errClosed)
		<-l.done
	}
	return nil
}

// hangUp takes no more messages from its owner, and drops those that come.
func (l *link) hangUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closing {
		l.closing = true
		close(l.closed)
		l.awake()
	}
}

// fail ends the connection, with what is queued.
func (l *link) fail(why error) {
	l.end(why)
	l.cut()
}

// writeTo sends what is queued until the link is closed or the connection over.
func (l *link) writeTo(s stream) {
	for {
		queue, last := l.dequeue()
		for _, text := range queue {
			if err := s.SendMsg(text); errors.Is(err, io.EOF) {
				return // the reader learns why
			} else if err != nil {
				l.fail(reason(err))
				return
			}
			l.sent(len(text))
		}
		if last {
			return
		}
		select {
		case <-l.wake:
		case <-l.ctx.Done():
			return
		}
	}
}

// readFrom receives until the connection is over. Its owner gets what came before, unless
// he closes the link.
func (l *link) readFrom(s stream) {
	defer close(l.read)
	for {
		var m gang.Message
		if err := s.RecvMsg(&m); err != nil {
			l.end(reason(err))
			return
		}
		if hello, ok := m.(gang.Hello); ok && hello.Node != l.peer {
			l.fail(fmt.Errorf("node %d says that it is node %d", l.peer, hello.Node))
			return
		}
		select {
		case l.in <- m:
		case <-l.closed:
		}
	}
}

// reason is a connection's end without gRPC's own words around it.
func reason(err error) error {
	if errors.Is(err, io.EOF) {
		return errHungUp
	}
	if s, ok := status.FromError(err); ok && s.Code() != codes.OK {
		return errors.New(s.Message())
	}
	return err
}

// codec carries messages as package gang writes them.
type codec struct{}

func (codec) Name() string                  { return "json" }
func (codec) Marshal(v any) ([]byte, error) { return v.([]byte), nil }
func (codec) Unmarshal(text []byte, v any) (err error) {
	*v.(*gang.Message), err = gang.Decode(text)
	return err
}
