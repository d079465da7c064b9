package wire

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

const (
	// MaxMessage is how many bytes a message may have. A larger one ends the connection, on
	// either side.
	MaxMessage = 1 << 20

	mostQueued      = 4096    // messages that wait to be sent
	mostQueuedBytes = 4 << 20 // and what they weigh
	flush           = 5 * time.Second
	// silence is after which time a connection ends on which nothing comes. The nodes' own
	// leases are shorter: this only ends what they forgot.
	silence = 5 * time.Minute
)

var (
	errFull   = errors.New("the other side takes no messages any more")
	errClosed = errors.New("the connection is closed")
	errHungUp = errors.New("the other side has closed the connection")
	errSilent = fmt.Errorf("nothing was heard for %s", silence)
)

// A Link is a connection between the head and a follower. A message is its length in four
// bytes, and as many bytes.
type Link struct {
	peer int
	addr string
	conn net.Conn

	ctx    context.Context // over with the connection, and why
	end    context.CancelCauseFunc
	in     chan []byte
	read   chan struct{} // closed when nothing more comes
	closed chan struct{} // by Close
	done   chan struct{} // the connection is closed, and nothing runs any more

	mu      sync.Mutex
	queue   []byte // framed messages
	queued  int    // messages that are not sent
	weight  int    // their bytes
	closing bool
	wake    chan struct{}
}

// NewLink begins to send and to receive on a connection.
func NewLink(conn net.Conn, peer int) *Link {
	l := &Link{
		peer: peer, addr: address(conn.LocalAddr()), conn: conn, in: make(chan []byte), wake: make(chan struct{}, 1),
		read: make(chan struct{}), closed: make(chan struct{}), done: make(chan struct{}),
	}
	l.ctx, l.end = context.WithCancelCause(context.Background())
	go l.receive()
	go l.write()
	return l
}

// Peer is the other side's number, as its credentials say.
func (l *Link) Peer() int { return l.peer }

// Addr is this side's own address as the other side reaches it, without the port.
func (l *Link) Addr() string { return l.addr }

// Send queues a message, and does not wait for the network. An error means that the
// connection is over: where the other side does not take what is queued, it ends.
func (l *Link) Send(text []byte) error {
	if len(text) > MaxMessage {
		err := fmt.Errorf("a message of %d bytes is too large to be sent (at most %d)", len(text), MaxMessage)
		l.fail(err)
		return err
	}
	if err := l.enqueue(text); err != nil {
		return fmt.Errorf("send to node %d: %w", l.peer, err)
	}
	return nil
}

func (l *Link) enqueue(text []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.ctx.Err() != nil:
		return context.Cause(l.ctx)
	case l.closing:
		return errClosed
	case l.queued == mostQueued || l.weight+len(text) > mostQueuedBytes:
		l.fail(errFull)
		return errFull
	}
	l.queue = append(binary.BigEndian.AppendUint32(l.queue, uint32(len(text))), text...)
	l.queued, l.weight = l.queued+1, l.weight+len(text)
	l.awake()
	return nil
}

func (l *Link) awake() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// dequeue takes all that is queued, and says whether nothing comes after it.
func (l *Link) dequeue() (frames []byte, messages, weight int, last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	frames, l.queue = l.queue, nil
	return frames, l.queued, l.weight, l.closing
}

// write sends what is queued until the link is closed or the connection over, and closes it.
func (l *Link) write() {
	defer close(l.done)
	defer func() { <-l.read }()
	defer l.conn.Close()
	for {
		frames, messages, weight, last := l.dequeue()
		if len(frames) > 0 {
			if _, err := l.conn.Write(frames); err != nil {
				l.fail(reason(err))
				return
			}
			l.mu.Lock()
			l.queued, l.weight = l.queued-messages, l.weight-weight
			l.mu.Unlock()
		}
		if last {
			break
		}
		select {
		case <-l.wake:
		case <-l.ctx.Done():
			return
		}
	}
	if conn, ok := l.conn.(*tls.Conn); ok && conn.CloseWrite() == nil {
		<-l.read // the other side has heard all, or never will
	}
}

// receive takes what comes until the connection is over. Its owner gets what came before,
// unless he closes the link.
func (l *Link) receive() {
	defer close(l.read)
	for {
		text, err := readFrame(l.conn, silence)
		if err != nil {
			l.end(reason(err))
			return
		}
		select {
		case l.in <- text:
		case <-l.closed:
		}
	}
}

// readFrame reads one message, for which it waits so long.
func readFrame(conn net.Conn, most time.Duration) ([]byte, error) {
	if err := conn.SetReadDeadline(time.Now().Add(most)); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > MaxMessage {
		return nil, fmt.Errorf("a message of %d bytes is too large (at most %d)", n, MaxMessage)
	}
	text := make([]byte, n)
	_, err := io.ReadFull(conn, text)
	return text, err
}

// reason is a connection's end in the words of this package.
func reason(err error) error {
	var late net.Error
	switch {
	case errors.Is(err, io.EOF):
		return errHungUp
	case errors.As(err, &late) && late.Timeout():
		return errSilent
	}
	return err
}

// Receive waits for the next message. Its error ends the connection; what came before that
// is returned first.
func (l *Link) Receive(ctx context.Context) ([]byte, error) {
	select {
	case text := <-l.in:
		return text, nil
	case <-l.read:
		return nil, fmt.Errorf("hear node %d: %w", l.peer, context.Cause(l.ctx))
	case <-l.closed:
		return nil, errClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Close ends the connection once what was queued is sent, within a bound.
func (l *Link) Close() error {
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
func (l *Link) hangUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closing {
		l.closing = true
		close(l.closed)
		l.awake()
	}
}

// fail ends the connection, with what is queued.
func (l *Link) fail(why error) {
	l.end(why)
	if conn, ok := l.conn.(*tls.Conn); ok {
		conn.NetConn().Close() // without a last word, which would have to wait
		return
	}
	l.conn.Close()
}
