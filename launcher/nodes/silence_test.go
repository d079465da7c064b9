package nodes

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A muted connection carries nothing from some moment on, without an end: as if a cable
// were pulled.
type muted struct {
	net.Conn
	mute *atomic.Bool
}

func (m muted) Write(p []byte) (int, error) {
	if m.mute.Load() {
		return len(p), nil
	}
	return m.Conn.Write(p)
}

// one is a listener to which one connection comes.
type one struct {
	conn chan net.Conn
	over chan struct{}
}

func (o one) Accept() (net.Conn, error) {
	select {
	case c := <-o.conn:
		return c, nil
	case <-o.over:
		return nil, net.ErrClosed
	}
}
func (o one) Close() error   { close(o.over); return nil }
func (o one) Addr() net.Addr { return &net.TCPAddr{} }

// A pipe is a session within a process, which can be muted.
type pipe struct {
	links          *Links
	head, follower *Link
	mute           atomic.Bool
}

func newConnPipe(t *testing.T, head, node *Credentials) *pipe {
	t.Helper()
	near, far := net.Pipe()
	door := one{make(chan net.Conn, 1), make(chan struct{})}
	p := &pipe{links: newLinks(head, door)}
	door.conn <- muted{far, &p.mute}
	var err error
	if p.follower, err = open(t.Context(), tls.Client(muted{near, &p.mute}, node.testConfig())); err != nil {
		t.Fatal(err)
	}
	if p.head, err = p.links.Accept(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

// Silence ends no connection for as long as the nodes' own leases may want to have it, and
// none is there for ever. Closing one that is silent is bounded.
func TestSilence(t *testing.T) {
	head, node := credentialsOf(t, testSecret, "run", 0, 2), credentialsOf(t, testSecret, "run", 1, 2)
	synctest.Test(t, func(t *testing.T) {
		p := newConnPipe(t, head, node)
		sendBody(t, p.head, "alive")
		if got := receiveBody(t, p.follower); got != "alive" {
			t.Errorf("%q", got)
		}
		p.mute.Store(true)
		const lease = 240 * time.Second
		for _, until := range []struct {
			wait time.Duration
			over bool
		}{{lease, false}, {2 * lease, true}} {
			ctx, stop := context.WithTimeout(t.Context(), until.wait)
			for _, link := range []*Link{p.follower, p.head} {
				if _, err := link.Receive(ctx); errors.Is(err, context.DeadlineExceeded) == until.over {
					t.Errorf("after %v of silence: %v", until.wait, err)
				}
			}
			stop()
		}
		began := time.Now()
		p.follower.Close()
		if err := p.links.Close(); err != nil || time.Since(began) > 3*flush {
			t.Errorf("it took %v, %v", time.Since(began), err)
		}
	})
}

// Closing what is silent, but not for long, does not wait for it.
func TestCloseInSilence(t *testing.T) {
	head, node := credentialsOf(t, testSecret, "run", 0, 2), credentialsOf(t, testSecret, "run", 1, 2)
	synctest.Test(t, func(t *testing.T) {
		p := newConnPipe(t, head, node)
		p.mute.Store(true)
		began := time.Now()
		sendBody(t, p.follower, "bye")
		p.follower.Close()
		if took := time.Since(began); took > 2*flush {
			t.Errorf("the node took %v", took)
		}
		began = time.Now()
		if p.links.Close(); time.Since(began) > 3*flush {
			t.Errorf("the head took %v", time.Since(began))
		}
	})
}

// A client that connects and stays silent is disconnected.
func TestASilentHandshake(t *testing.T) {
	head := credentialsOf(t, testSecret, "run", 0, 2)
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		door := one{make(chan net.Conn, 1), make(chan struct{})}
		links := newLinks(head, door)
		began := time.Now()
		door.conn <- far
		if n, err := near.Read(make([]byte, 1)); n > 0 || err == nil || time.Since(began) > 2*handshake {
			t.Errorf("%d bytes after %v, %v", n, time.Since(began), err)
		}
		links.Close()
	})
}
