package nodes

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/gpurun/gpurun/launcher/errext"
)

const (
	handshake = 10 * time.Second
	// spareHandshakes is how many strangers may be in their handshakes in addition to all nodes.
	spareHandshakes = 64
	// acceptPause is the pause after a connection that could not be accepted.
	acceptPause = 50 * time.Millisecond
)

// The head listens on one of a few ports that all nodes can compute. They are below the range of ephemeral
// ports.
const (
	firstPort = 20011
	portRange = 12000
	portCount = 16
)

// candidates returns the possible ports of a launch's head, which takes the first free one.
func candidates(run string, restart int) []int {
	ports := make([]int, portCount)
	for k := range ports {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d|%d|%s", restart, k, run))
		ports[k] = firstPort + int(binary.BigEndian.Uint64(sum[:])%portRange)
	}
	return ports
}

// Links accepts followers at the head.
type Links struct {
	c          *Credentials
	listener   net.Listener
	accepted   chan *Link
	mistrusted chan *Mistrusted
	handshakes chan struct{}   // has an element for each handshake in progress
	ctx        context.Context // done when Close is called
	stop       context.CancelFunc
	served     sync.WaitGroup // open connections
}

// A Mistrusted is a gpurun that claims to be a node of this launch, at an address, and has another secret.
type Mistrusted struct {
	Node int
	Addr string
}

func (m *Mistrusted) Error() string {
	return fmt.Sprintf("a gpurun at %s claims to be node %d, and has another secret", m.Addr, m.Node)
}

// Listen opens the head's port to the launch's nodes: the given one, or with 0 the first free one of those
// that all nodes know.
func Listen(ctx context.Context, c *Credentials, port int) (*Links, error) {
	if err := enoughFiles(c.nodes); err != nil {
		return nil, err
	}
	ports := c.ports
	if port != 0 {
		ports = []int{port}
	}
	listener, err := listenOn(ctx, ports)
	if err != nil {
		return nil, err
	}
	return newLinks(c, listener), nil
}

// newLinks accepts nodes from a listener.
func newLinks(c *Credentials, listener net.Listener) *Links {
	h := &Links{
		c: c, listener: listener, accepted: make(chan *Link), mistrusted: make(chan *Mistrusted, 1),
		handshakes: make(chan struct{}, c.nodes+spareHandshakes),
	}
	h.ctx, h.stop = context.WithCancel(context.Background())
	h.served.Go(h.accept)
	return h
}

// listenOn opens the first free port, for all addresses of the machine.
func listenOn(ctx context.Context, ports []int) (net.Listener, error) {
	config := net.ListenConfig{KeepAlive: -1} // silent connections end anyway
	var err error
	for _, port := range ports {
		var listener net.Listener
		if listener, err = config.Listen(ctx, "tcp", ":"+strconv.Itoa(port)); err == nil {
			return listener, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return nil, errext.WithHint(fmt.Errorf("listen for the other nodes: %w", err),
		"name a port that is free here and reachable from the other nodes")
}

// accept accepts connections until the listener is closed. While too many are in their handshakes, it accepts
// none.
func (h *Links) accept() {
	for {
		select {
		case h.handshakes <- struct{}{}:
		case <-h.ctx.Done():
			return
		}
		conn, err := h.listener.Accept()
		if err == nil {
			h.served.Go(func() { h.serve(conn) })
			continue
		}
		<-h.handshakes
		if h.ctx.Err() != nil {
			return
		}
		time.Sleep(acceptPause) // too many files are open, for example
	}
}

// serve handles one connection until it ends.
func (h *Links) serve(raw net.Conn) {
	conn, node, err := h.prove(raw)
	<-h.handshakes
	if err != nil {
		raw.Close()
		return
	}
	l := NewLink(conn, node)
	defer context.AfterFunc(h.ctx, func() { l.Close() })()
	select {
	case h.accepted <- l:
	case <-l.ctx.Done():
		l.hangUp()
	case <-h.ctx.Done():
	}
	<-l.done
}

// prove does the handshake, which identifies the node, and welcomes it.
func (h *Links) prove(raw net.Conn) (conn *tls.Conn, node int, err error) {
	defer context.AfterFunc(h.ctx, func() { raw.Close() })()
	if err := raw.SetDeadline(time.Now().Add(handshake)); err != nil {
		return nil, 0, err
	}
	conn = tls.Server(raw, h.c.tlsConfig(func(s tls.ConnectionState) (err error) {
		node, err = h.c.peer(s)
		if claimed, ok := h.c.claims(s); err != nil && ok && !h.c.trusts(s.PeerCertificates[0]) {
			select {
			case h.mistrusted <- &Mistrusted{Node: claimed, Addr: address(raw.RemoteAddr())}:
			default: // the head has not read the last one
			}
		}
		return err
	}))
	if _, err := conn.Write(welcome); err != nil { // after the handshake
		return nil, 0, err
	}
	return conn, node, raw.SetDeadline(time.Time{})
}

// welcome is the head's first message. It is empty, and sent only to nodes of the launch.
var welcome = make([]byte, 4)

// Accept waits for the next node's connection. The error is a Mistrusted for a gpurun with another secret.
func (h *Links) Accept(ctx context.Context) (*Link, error) {
	select {
	case l := <-h.accepted:
		return l, nil
	case m := <-h.mistrusted:
		return nil, m
	case <-h.ctx.Done():
		return nil, errClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Close accepts no more nodes, and ends all connections after their queues are sent, within seconds.
func (h *Links) Close() error {
	h.stop()
	_ = h.listener.Close() // it may be closed already
	h.served.Wait()
	return nil
}

// address is the host of a socket's address, in the form of other programs.
func address(a net.Addr) string {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return ""
	}
	return at.Addr().Unmap().String()
}

// filesBeside bounds gpurun's other open files, including those for the ranks' output.
const filesBeside = 512

// enoughFiles checks that enough files can be open for a connection to each node. Go has already raised the
// limit as far as possible, and restores it in child processes.
func enoughFiles(nodes int) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read the limit of open files: %w", err)
	}
	if need := uint64(nodes + filesBeside); limit.Cur < need && nodes > 1 {
		return errext.Errorf(fmt.Sprintf("raise it where the job starts, `ulimit -n %d`", need),
			"%d nodes need more open files than the limit of %d", nodes, limit.Cur)
	}
	return nil
}
