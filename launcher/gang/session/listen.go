package session

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/grpclog"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/gang"
)

// What ends with a code of its own: trying again later may help.
const codeRetry = 75

const (
	handshake = 10 * time.Second
	// spareHandshakes are how many strangers may be in the middle of theirs while all nodes
	// are.
	spareHandshakes = 64
	buffer          = 4 << 10
	window          = 64 << 10
	maxHeaders      = 8 << 10
	// Silence is for the nodes' own leases to judge: these only end what they forgot.
	silent, unanswered = time.Minute, 4 * time.Minute
)

// What gRPC has to say of strangers is not for the user's screen.
func init() { grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard)) }

// links are the head's.
type links struct {
	server *grpc.Server
	half   *halfOpen
	came   chan *link
	ctx    context.Context // over when Close is called
	stop   context.CancelFunc
	served sync.WaitGroup // gRPC's loop, and readers
	mu     sync.Mutex
	open   map[*link]bool
}

// Listen opens the head's port to the launch's nodes: the one that is given, or with 0 the
// first free one of those that all nodes know.
func Listen(ctx context.Context, c *Credentials, port int) (gang.Links, error) {
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

// newLinks takes the nodes that come to a listener.
func newLinks(c *Credentials, listener net.Listener) *links {
	l := &links{half: &halfOpen{most: c.nodes + spareHandshakes}, came: make(chan *link), open: map[*link]bool{}}
	l.ctx, l.stop = context.WithCancel(context.Background())
	l.server = grpc.NewServer(
		grpc.Creds(&proof{TransportCredentials: credentials.NewTLS(c.tlsConfig(new(int))), c: c, half: l.half}), grpc.ForceServerCodec(codec{}),
		grpc.ConnectionTimeout(handshake), grpc.WaitForHandlers(true), grpc.MaxConcurrentStreams(1), grpc.MaxHeaderListSize(maxHeaders), grpc.MaxRecvMsgSize(MaxMessage),
		grpc.ReadBufferSize(buffer), grpc.WriteBufferSize(buffer), grpc.StaticStreamWindowSize(window), grpc.StaticConnWindowSize(window),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: silent, Timeout: unanswered, MaxConnectionIdle: handshake}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: silent / 2}),
	)
	l.server.RegisterService(&grpc.ServiceDesc{ServiceName: service, Streams: []grpc.StreamDesc{{
		StreamName: method, ServerStreams: true, ClientStreams: true, Handler: func(_ any, s grpc.ServerStream) error { return l.serve(s) },
	}}}, nil)
	l.served.Go(func() { _ = l.server.Serve(listener) })
	return l
}

const service, method = "gpurun", "Session"

// listenOn takes the first port that is free, for all addresses of the machine.
func listenOn(ctx context.Context, ports []int) (net.Listener, error) {
	config := net.ListenConfig{KeepAlive: -1} // gRPC has its own
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

// serve is one node's stream: gRPC calls it once the node is known, and ends the stream
// when it returns.
func (h *links) serve(s grpc.ServerStream) error {
	p, _ := peer.FromContext(s.Context())
	who, ok := p.AuthInfo.(proven)
	if !ok {
		return errStranger
	}
	l := newLink(who.node, address(who.conn.LocalAddr()), func() { who.conn.Close() })
	defer close(l.done)
	if !h.add(l) {
		return errClosed
	}
	defer h.remove(l)
	if err := s.SendHeader(nil); err != nil { // tells the node that it is known
		return err
	}
	h.served.Go(func() { l.readFrom(s) })
	select {
	case h.came <- l:
		l.writeTo(s)
		select {
		case <-l.read: // the connection is over, and its owner knows all
		case <-l.closed:
		}
	case <-h.ctx.Done():
		l.hangUp()
	case <-l.ctx.Done():
		l.hangUp()
	}
	l.end(errClosed)
	return nil
}

// Accept waits for the next node.
func (h *links) Accept(ctx context.Context) (gang.Link, error) {
	select {
	case l := <-h.came:
		return l, nil
	case <-h.ctx.Done():
		return nil, errClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (h *links) add(l *link) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() != nil {
		return false
	}
	h.open[l] = true
	return true
}

func (h *links) remove(l *link) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.open, l)
}

// Close ends all connections once what was queued is sent, within seconds.
func (h *links) Close() error {
	h.mu.Lock()
	h.stop()
	var closed sync.WaitGroup
	for l := range h.open {
		closed.Go(func() { l.Close() })
	}
	h.mu.Unlock()
	h.half.close()
	closed.Wait()
	stopped := make(chan struct{})
	go func() { h.server.GracefulStop(); close(stopped) }() // what was sent leaves the machine
	select {
	case <-stopped:
	case <-time.After(flush):
		h.server.Stop()
		<-stopped
	}
	h.served.Wait()
	return nil
}

// address is the machine's part of a socket's address, as other programs take it.
func address(a net.Addr) string {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return ""
	}
	return at.Addr().Unmap().String()
}

// proven is what a handshake proved.
type proven struct {
	credentials.TLSInfo
	node int
	conn net.Conn
}

// A proof is TLS with a bound on handshakes that are not through.
type proof struct {
	credentials.TransportCredentials
	c    *Credentials
	half *halfOpen
}

func (p *proof) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	p.half.add(raw)
	defer p.half.remove(raw)
	var node int
	config := p.c.tlsConfig(&node)
	verify := config.VerifyConnection
	config.VerifyConnection = func(s tls.ConnectionState) error {
		err := verify(s)
		if err != nil {
			p.c.mistaken(s, raw.RemoteAddr())
		}
		return err
	}
	conn, info, err := credentials.NewTLS(config).ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	return conn, proven{info.(credentials.TLSInfo), node, raw}, nil
}

func (p *proof) Clone() credentials.TransportCredentials {
	return &proof{p.TransportCredentials.Clone(), p.c, p.half}
}

// halfOpen are connections whose other side is not known yet. Where they are too many, the
// oldest goes: nodes take milliseconds, and who wants to keep them out has time.
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

// filesBeside are open files of gpurun itself, and those of its ranks' output.
const filesBeside = 512

// enoughFiles makes sure that a connection a node can be open. Go has raised the limit as
// far as it may be, and gives what gpurun starts the one that it had.
func enoughFiles(nodes int) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("ask how many files may be open: %w", err)
	}
	if need := uint64(nodes + filesBeside); limit.Cur < need && nodes > 1 {
		return errext.Errorf(fmt.Sprintf("raise it where the job starts, `ulimit -n %d`", need), "%d nodes need more open files than the limit of %d", nodes, limit.Cur)
	}
	return nil
}
