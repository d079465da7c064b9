package nodes

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
	// MaxMessage is the largest message in bytes. A larger one ends the connection, on either side.
	MaxMessage = 1 << 20

	mostQueued = 4 << 20 // bytes that wait to be sent
	flush      = 5 * time.Second
	// silence is how long a connection may receive nothing before it is closed. The nodes' own time limits
	// are shorter.
	silence = 5 * time.Minute
)

var (
	errFull   = errors.New("the other side takes no messages any more")
	errClosed = errors.New("the connection is closed")
	errHungUp = errors.New("the other side has closed the connection")
	errSilent = fmt.Errorf("nothing was received for %s", silence)
)

// A Link is a connection between the head and a follower. A message is its length in four bytes, and its bytes.
type Link struct {
	peer int
	addr string
	conn net.Conn

	ctx    context.Context // ends with the connection, its cause is the reason
	end    context.CancelCauseFunc
	in     chan []byte
	read   chan struct{} // closed when nothing more arrives
	closed chan struct{} // closed by Close
	done   chan struct{} // the connection is closed, and nothing runs any more

	mu      sync.Mutex
	queue   []byte // framed messages
	closing bool
	wake    chan struct{}
}

// NewLink starts to send and to receive on a connection.
func NewLink(conn net.Conn, peer int) *Link {
	l := &Link{
		peer: peer, addr: address(conn.LocalAddr()), conn: conn,
		in: make(chan []byte), wake: make(chan struct{}, 1),
		read: make(chan struct{}), closed: make(chan struct{}), done: make(chan struct{}),
	}
	l.ctx, l.end = context.WithCancelCause(context.Background())
	go l.receive()
	go l.write()
	return l
}

// Peer returns the other side's node number, from its credentials.
func (l *Link) Peer() int { return l.peer }

// Addr returns the address at which the other side reaches this one, without the port.
func (l *Link) Addr() string { return l.addr }

// Send queues a message, and does not wait for the network. If the queue is full, the connection ends. An
// error means that the connection has ended.
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
	case len(l.queue)+len(text) > mostQueued:
		l.fail(errFull)
		return errFull
	}
	l.queue = append(binary.BigEndian.AppendUint32(l.queue, uint32(len(text))), text...)
	l.awake()
	return nil
}

func (l *Link) awake() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// dequeue takes everything that is queued, and reports whether it is the last.
func (l *Link) dequeue() (frames []byte, last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	frames, l.queue = l.queue, nil
	return frames, l.closing
}

// write sends the queue until the link is closed or the connection over, and closes the connection.
func (l *Link) write() {
	defer close(l.done)
	defer func() { <-l.read }()
	defer l.conn.Close()
	for {
		frames, last := l.dequeue()
		if _, err := l.conn.Write(frames); err != nil {
			l.fail(reason(err))
			return
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
		<-l.read // the other side has received everything, or is gone
	}
}

// receive reads messages until the connection is over. The owner still gets earlier messages, unless it
// closes the link.
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

// readFrame reads one message, within a time limit.
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

// reason translates the error of a connection's end.
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

// Receive waits for the next message. When the connection ends, it returns the remaining messages before the
// error.
func (l *Link) Receive(ctx context.Context) ([]byte, error) {
	select {
	case text := <-l.in:
		return text, nil
	case <-l.read:
		return nil, fmt.Errorf("receive from node %d: %w", l.peer, context.Cause(l.ctx))
	case <-l.closed:
		return nil, errClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Close ends the connection after the queue is sent, within a bound.
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

// hangUp accepts no more messages from the owner, and drops messages that arrive.
func (l *Link) hangUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closing {
		l.closing = true
		close(l.closed)
		l.awake()
	}
}

// fail ends the connection, and drops the queue.
func (l *Link) fail(why error) {
	l.end(why)
	if conn, ok := l.conn.(*tls.Conn); ok {
		conn.NetConn().Close() // without TLS's closing message, which could block
		return
	}
	l.conn.Close()
}
