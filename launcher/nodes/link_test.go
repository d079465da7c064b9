package nodes

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// A side that reads nothing does not make the other one wait: its connection ends. The two sides share a
// net.Pipe, which has no buffer: what is accepted is one batch that is being sent, and the queue.
func TestAFullQueue(t *testing.T) {
	for _, side := range []string{"head", "follower"} {
		t.Run(side, func(t *testing.T) {
			from, to := pipeOf(t, side == "head")
			l := NewLink(from, 1)
			defer l.Close()
			const large, bound = 100_000, mostQueued / 100_000
			var err error
			sent := 0
			for err = l.Send(make([]byte, large)); err == nil; sent++ {
				err = l.Send(make([]byte, large))
			}
			if !errors.Is(err, errFull) || sent < bound || sent > 2*bound {
				t.Errorf("after %d messages: %v", sent, err)
			}
			if err := l.Send([]byte("bye")); !errors.Is(err, errFull) {
				t.Errorf("after the end: %v", err)
			}
			if _, err := l.Receive(t.Context()); !errors.Is(err, errFull) {
				t.Errorf("the sender's next Receive: %v", err)
			}
			_, _ = io.Copy(io.Discard, to) // ends, because the connection is cut
		})
	}
}

// pipeOf connects node 0 and node 1 by TLS over a net.Pipe, and returns the head's side first, or the
// follower's.
func pipeOf(t *testing.T, headFirst bool) (one, other *tls.Conn) {
	t.Helper()
	near, far := net.Pipe()
	t.Cleanup(func() { near.Close(); far.Close() })
	head := tls.Server(near, credentialsOf(t, testSecret, "run", 0, 2).testConfig())
	follower := tls.Client(far, credentialsOf(t, testSecret, "run", 1, 2).testConfig())
	done := make(chan error, 1)
	go func() { done <- head.HandshakeContext(t.Context()) }()
	if err := errors.Join(follower.HandshakeContext(t.Context()), <-done); err != nil {
		t.Fatal(err)
	}
	if headFirst {
		return head, follower
	}
	return follower, head
}

func TestTooLargeToBeSent(t *testing.T) {
	head, follower := newLaunch(t, 2).join(t, 1)
	sendBody(t, head, strings.Repeat("x", MaxMessage-100))
	if got := receiveBody(t, follower); len(got) != MaxMessage-100 {
		t.Errorf("%d bytes", len(got))
	}
	if err := head.Send([]byte(strings.Repeat("x", MaxMessage+1))); err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("%v", err)
	}
	if _, err := head.Receive(t.Context()); err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("%v", err)
	}
}

// A wire is a proxy between a node and the head, and can be cut.
type wire struct {
	front net.Listener
	conns chan [2]*net.TCPConn
}

func newWire(t *testing.T, to string) *wire {
	t.Helper()
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{front, make(chan [2]*net.TCPConn, 1)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		client, err := front.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		w.conns <- [2]*net.TCPConn{client.(*net.TCPConn), server.(*net.TCPConn)}
		back := make(chan struct{})
		go func() { defer close(back); pass(client, server) }()
		pass(server, client)
		<-back
	}()
	t.Cleanup(func() { front.Close(); <-done })
	return w
}

func pass(to, from net.Conn) {
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (w *wire) port() int { return w.front.Addr().(*net.TCPAddr).Port }

// joinThrough connects node 1 over a wire.
func (l *testLaunch) joinThrough(t *testing.T) (head, follower *Link, conns [2]*net.TCPConn) {
	t.Helper()
	w := newWire(t, l.at())
	follower, err := NewDialer(credentialsOf(t, testSecret, "run", 1, l.nodes), "127.0.0.1", w.port()).Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if head, err = l.links.Accept(t.Context()); err != nil {
		t.Fatal(err)
	}
	return head, follower, <-w.conns
}

// What ends without a word, as when a machine says that there is no such process any more,
// is seen at once on the other side, and the node comes again.
func TestAResetAndAReconnect(t *testing.T) {
	l := newLaunch(t, 2)
	head, follower, conns := l.joinThrough(t)
	sendBody(t, follower, "hello")
	receiveBody(t, head)
	began := time.Now()
	for _, c := range conns {
		_ = c.SetLinger(0)
		c.Close()
	}
	for _, link := range []*Link{head, follower} {
		if _, err := link.Receive(t.Context()); err == nil {
			t.Error("a message from nobody")
		}
		if err := link.Send([]byte("bye")); err == nil {
			t.Error("a broken link sends")
		}
		link.Close()
	}
	if took := time.Since(began); took > flush {
		t.Errorf("it took %v", took)
	}
	head, follower = l.join(t, 1)
	sendBody(t, follower, "hello")
	receiveBody(t, head)
}

// Two Closes, one after the other and beside each other, are one.
func TestCloseTwice(t *testing.T) {
	head, follower := newLaunch(t, 2).join(t, 1)
	for _, link := range []*Link{head, follower} {
		done := make(chan error)
		go func() { done <- link.Close() }()
		if err := errors.Join(link.Close(), <-done, link.Close()); err != nil {
			t.Error(err)
		}
	}
}
