package nodes

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/launcher/commandline"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testSecret = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

// credentialsOf makes the credentials of a node that was given a secret.
func credentialsOf(t testing.TB, secret, run string, node, nodes int) *Credentials {
	t.Helper()
	c, err := Trust(t.Context(), TrustOptions{Run: run, Node: node, Nodes: nodes, Environ: commandline.Environ{secretVariable: secret}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// testConfig is the configuration of one connection that checks the other side.
func (c *Credentials) testConfig() *tls.Config {
	return c.tlsConfig(func(s tls.ConnectionState) error {
		_, err := c.peer(s)
		return err
	})
}

// freePort returns a port on which no process listens.
func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// A launch is a head that listens, for tests.
type testLaunch struct {
	links *Links
	port  int
	nodes int
}

func newLaunch(t testing.TB, nodes int) *testLaunch {
	t.Helper()
	l := &testLaunch{port: freePort(t), nodes: nodes}
	var err error
	if l.links, err = Listen(t.Context(), credentialsOf(t, testSecret, "run", 0, nodes), l.port); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.links.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// join connects a node.
func (l *testLaunch) join(t testing.TB, node int) (head, follower *Link) {
	t.Helper()
	follower, err := NewDialer(credentialsOf(t, testSecret, "run", node, l.nodes), "127.0.0.1", l.port).Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { follower.Close() })
	if head, err = l.links.Accept(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { head.Close() })
	return head, follower
}

func sendBody(t testing.TB, l *Link, text string) {
	t.Helper()
	if err := l.Send([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

func receiveBody(t testing.TB, l *Link) string {
	t.Helper()
	text, err := l.Receive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestASession(t *testing.T) {
	l := newLaunch(t, 3)
	for node := 1; node < 3; node++ {
		head, follower := l.join(t, node)
		if head.Peer() != node || follower.Peer() != 0 || head.Addr() != "127.0.0.1" || follower.Addr() != "127.0.0.1" {
			t.Errorf("node %d: the head sees node %d from %s, the node %d from %s", node, head.Peer(), head.Addr(), follower.Peer(), follower.Addr())
		}
		sendBody(t, follower, "hello")
		if got := receiveBody(t, head); got != "hello" {
			t.Errorf("%q", got)
		}
		for seq := range 100 {
			sendBody(t, head, strconv.Itoa(seq))
		}
		for seq := range 100 {
			if got := receiveBody(t, follower); got != strconv.Itoa(seq) {
				t.Fatalf("%s came in the place of %d", got, seq)
			}
		}
	}
}

// Close sends the whole queue, from either side, even to a late reader.
func TestCloseSendsTheQueue(t *testing.T) {
	for _, side := range []string{"head", "follower"} {
		t.Run(side, func(t *testing.T) {
			head, follower := newLaunch(t, 2).join(t, 1)
			from, to := head, follower
			if side == "follower" {
				from, to = follower, head
			}
			const messages = 200
			for range messages {
				sendBody(t, from, strings.Repeat("x", 1000))
			}
			sendBody(t, from, "bye")
			closed := make(chan struct{})
			go func() { from.Close(); close(closed) }()
			for range messages {
				receiveBody(t, to)
			}
			receiveBody(t, to)
			if _, err := to.Receive(t.Context()); !errors.Is(err, errHungUp) {
				t.Errorf("after the end: %v", err)
			}
			to.Close()
			<-closed
			if err := from.Send([]byte("bye")); err == nil {
				t.Error("a closed link sends")
			}
		})
	}
}

// The head's end comes after its last words, too.
func TestTheHeadEnds(t *testing.T) {
	l := newLaunch(t, 3)
	_, one := l.join(t, 1)
	two, err := NewDialer(credentialsOf(t, testSecret, "run", 2, 3), "127.0.0.1", l.port).Dial(t.Context())
	if err != nil { // which the head never accepts
		t.Fatal(err)
	}
	defer two.Close()
	began := time.Now()
	l.links.Close()
	for _, follower := range []*Link{one, two} {
		if _, err := follower.Receive(t.Context()); err == nil {
			t.Error("a message from nobody")
		}
		follower.Close()
	}
	if _, err := l.links.Accept(t.Context()); !errors.Is(err, errClosed) {
		t.Errorf("%v", err)
	}
	if took := time.Since(began); took > flush {
		t.Errorf("it took %v", took)
	}
	if _, err := NewDialer(credentialsOf(t, testSecret, "run", 1, 3), "127.0.0.1", l.port).Dial(t.Context()); !errors.Is(err, ErrRefused) {
		t.Errorf("a head that is gone: %v", err)
	}
}

func TestReceiveAndAcceptEndWithTheirContext(t *testing.T) {
	l := newLaunch(t, 2)
	head, follower := l.join(t, 1)
	why := fmt.Errorf("enough")
	ctx, stop := context.WithCancelCause(t.Context())
	stop(why)
	if _, err := l.links.Accept(ctx); !errors.Is(err, why) {
		t.Errorf("%v", err)
	}
	for _, link := range []*Link{head, follower} {
		if _, err := link.Receive(ctx); !errors.Is(err, why) {
			t.Errorf("%v", err)
		}
	}
	sendBody(t, head, "7")
	if got := receiveBody(t, follower); got != "7" {
		t.Errorf("%q", got)
	}
}
