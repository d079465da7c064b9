package wire

import (
	"context"
	"crypto/tls"
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

// codeRetry is the exit code where a later try may help.
const codeRetry = 75

const (
	handshake = 10 * time.Second
	// spareHandshakes is how many strangers may be in their handshakes in addition to all nodes.
	spareHandshakes = 64
	// acceptPause is the pause after a connection that could not be accepted.
	acceptPause = 50 * time.Millisecond
)

// Links accepts followers at the head.
type Links struct {
	c        *Credentials
	listener net.Listener
	half     *halfOpen
	came     chan *Link
	ctx      context.Context // done when Close is called
	stop     context.CancelFunc
	served   sync.WaitGroup // open connections
	mu       sync.Mutex
	open     map[*Link]bool
}

// Listen opens the head's port to the launch's nodes: the given one, or with 0 the first free one of those that all nodes
// know.
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
	h := &Links{c: c, listener: listener, half: &halfOpen{most: c.nodes + spareHandshakes}, came: make(chan *Link), open: map[*Link]bool{}}
	h.ctx, h.stop = context.WithCancel(context.Background())
	h.served.Go(h.accept)
	return h
}

// accept accepts connections until the listener is closed.
func (h *Links) accept() {
	for {
		conn, err := h.listener.Accept()
		switch {
		case err == nil:
			h.served.Go(func() { h.serve(conn) })
		case h.ctx.Err() != nil:
			return
		default: // too many files are open, for example
			time.Sleep(acceptPause)
		}
	}
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
	return nil, errext.WithHint(fmt.Errorf("listen for the other nodes: %w", err), "name a port that is free here and reachable from the other nodes")
}

// serve handles one connection until it ends.
func (h *Links) serve(raw net.Conn) {
	conn, node, err := h.prove(raw)
	if err != nil {
		raw.Close()
		return
	}
	l := NewLink(conn, node)
	h.mu.Lock()
	h.open[l] = true
	h.mu.Unlock()
	select {
	case h.came <- l:
	case <-h.ctx.Done():
		l.hangUp()
	case <-l.ctx.Done():
		l.hangUp()
	}
	<-l.done
	h.mu.Lock()
	delete(h.open, l)
	h.mu.Unlock()
}

// Accept waits for the next node's connection.
func (h *Links) Accept(ctx context.Context) (*Link, error) {
	select {
	case l := <-h.came:
		return l, nil
	case <-h.ctx.Done():
		return nil, errClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Close accepts no more nodes, and ends all connections after their queues are sent, within seconds.
func (h *Links) Close() error {
	h.mu.Lock()
	h.stop()
	var closed sync.WaitGroup
	for l := range h.open {
		closed.Go(func() { l.Close() })
	}
	h.mu.Unlock()
	_ = h.listener.Close() // it may be closed already
	h.half.close()
	closed.Wait()
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

// prove does the handshake, which identifies the node, and welcomes it.
func (h *Links) prove(raw net.Conn) (conn *tls.Conn, node int, err error) {
	h.half.add(raw)
	defer h.half.remove(raw)
	config := h.c.tlsConfig(&node)
	verify := config.VerifyConnection
	config.VerifyConnection = func(s tls.ConnectionState) error {
		err := verify(s)
		if err != nil {
			h.c.mistaken(s, raw.RemoteAddr())
		}
		return err
	}
	if err := raw.SetDeadline(time.Now().Add(handshake)); err != nil {
		return nil, 0, err
	}
	conn = tls.Server(raw, config)
	if _, err := conn.Write(welcome); err != nil { // after the handshake
		return nil, 0, err
	}
	return conn, node, raw.SetDeadline(time.Time{})
}

// welcome is the head's first message. It is empty, and sent only to nodes of the launch.
var welcome = make([]byte, 4)

// halfOpen has the connections whose other side is not known yet. If there are too many, the oldest is
// closed: nodes need milliseconds, attackers keep connections open for long.
type halfOpen struct {
	mu     sync.Mutex
	most   int
	conns  []net.Conn
	closed bool
}

func (h *halfOpen) add(c net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.conns = append(h.conns, c); len(h.conns) > h.most {
		h.conns[0].Close()
		h.conns = h.conns[1:]
	}
	if h.closed {
		c.Close()
	}
}

func (h *halfOpen) remove(c net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, other := range h.conns {
		if other == c {
			h.conns = append(h.conns[:i], h.conns[i+1:]...)
			return
		}
	}
}

func (h *halfOpen) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, c := range h.conns {
		c.Close()
	}
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
		return errext.Errorf(fmt.Sprintf("raise it where the job starts, `ulimit -n %d`", need), "%d nodes need more open files than the limit of %d", nodes, limit.Cur)
	}
	return nil
}
