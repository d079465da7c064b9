package session

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/gpurun/gpurun/launcher/gang"
)

const (
	connect = 10 * time.Second
	// stagger is how long a place has for itself before the next is tried beside it. From the
	// first that takes the call on, no other is tried for as long as answering: a head to which a
	// thousand nodes come at once takes its time, and calls at all of its ports would take more.
	stagger   = 300 * time.Millisecond
	answering = 2 * time.Second
	mostHosts = 16 // addresses of one name
)

// A dialer reaches the head from one node.
type dialer struct {
	c     *Credentials
	host  string
	ports []int
}

// Dialer reaches the head on a machine, by its port, or with 0 by those that all nodes
// know. The machine's name is looked up each time anew.
func Dialer(c *Credentials, host string, port int) gang.Dialer {
	if port != 0 {
		return &dialer{c, host, []int{port}}
	}
	return &dialer{c, host, c.ports}
}

func (d *dialer) Dial(ctx context.Context) (gang.Link, error) {
	places, err := d.places(ctx)
	if err != nil {
		return nil, err
	}
	conn, errs := d.race(ctx, places)
	if ctx.Err() != nil {
		if conn != nil {
			conn.Close()
		}
		return nil, context.Cause(ctx)
	}
	if conn == nil {
		return nil, fmt.Errorf("reach the head on %s: %w", d.host, judge(errs))
	}
	l, err := d.open(ctx, conn)
	if err != nil {
		return nil, fmt.Errorf("reach the head on %s: %w", conn.RemoteAddr(), err)
	}
	return l, nil
}

// places are where the head can be: all addresses of its machine, with the likeliest port
// first.
func (d *dialer) places(ctx context.Context) ([]string, error) {
	hosts, err := net.DefaultResolver.LookupHost(ctx, d.host)
	if err != nil && len(d.c.hosts) == 0 {
		return nil, fmt.Errorf("look up the head's machine: %w", err)
	}
	hosts = hosts[:min(len(hosts), mostHosts)]
	for _, known := range d.c.hosts {
		if !slices.Contains(hosts, known) {
			hosts = append(hosts, known)
		}
	}
	var places []string
	for _, port := range d.ports {
		for _, host := range hosts {
			places = append(places, net.JoinHostPort(host, strconv.Itoa(port)))
		}
	}
	return places, nil
}

// race tries one place after the other, the next as soon as one has failed or taken a
// while, longer where somebody is there, and keeps the first at which the head is.
func (d *dialer) race(ctx context.Context, places []string) (won *tls.Conn, errs []error) {
	type outcome struct {
		conn *tls.Conn
		err  error
	}
	ctx, stop := context.WithCancel(ctx)
	outcomes := make(chan outcome, len(places))
	answered := make(chan struct{}, len(places))
	var running sync.WaitGroup
	var patient time.Time // until when who has answered is waited for
	pending := 0
	for won == nil && (len(places) > 0 || pending > 0) {
		var next <-chan time.Time
		if len(places) > 0 {
			place := places[0]
			running.Go(func() {
				conn, err := d.try(ctx, place, answered)
				outcomes <- outcome{conn, err}
			})
			places, pending, next = places[1:], pending+1, time.After(stagger)
		}
		for waiting := true; waiting; {
			select {
			case o := <-outcomes:
				pending--
				won, errs, waiting = o.conn, append(errs, o.err), false
			case <-answered:
				if patient.IsZero() {
					patient = time.Now().Add(answering)
				}
				next = time.After(max(stagger, time.Until(patient)))
			case <-next:
				waiting = false
			}
		}
	}
	stop()
	running.Wait()
	for close(outcomes); pending > 0; pending-- {
		if o := <-outcomes; o.conn != nil {
			o.conn.Close()
		}
	}
	return won, errs
}

// errNobody is why a place that answers is not the head's.
var errNobody = errors.New("who answers is not the head of this launch")

// try connects, says so, and has the other side prove that it is the head.
func (d *dialer) try(ctx context.Context, place string, answered chan<- struct{}) (*tls.Conn, error) {
	dial := net.Dialer{Timeout: connect, KeepAlive: -1}
	raw, err := dial.DialContext(ctx, "tcp", place)
	if err != nil {
		return nil, err
	}
	answered <- struct{}{}
	ctx, stop := context.WithTimeout(ctx, handshake)
	defer stop()
	config, mistrusts := d.c.tlsConfig(new(int)), false
	verify := config.VerifyConnection
	config.VerifyConnection = func(s tls.ConnectionState) error {
		err := verify(s)
		if node, says := d.c.claims(s); err != nil && says && node == 0 {
			mistrusts = true // the handshake goes on, so that the head learns of this node
			return nil
		}
		return err
	}
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		if ctx.Err() != nil { // it has said nothing: the head may be stopped, or the way to it be cut
			return nil, fmt.Errorf("%s does not answer: %w", place, err)
		}
		return nil, fmt.Errorf("%s: %w: %w", place, errNobody, err)
	}
	if mistrusts {
		hearRefusal(conn)
		conn.Close()
		return nil, fmt.Errorf("%s: %w", place, gang.ErrMistrusted)
	}
	return conn, nil
}

// judge makes one error of all places. Where each that can be reached answers, and none is
// the head, there is none.
func judge(errs []error) error {
	var answers, other error
	for _, err := range errs {
		switch {
		case errors.Is(err, gang.ErrMistrusted):
			return err
		case errors.Is(err, errNobody):
			answers = fmt.Errorf("%w: %w", gang.ErrRefused, err)
		case errors.Is(err, syscall.ECONNREFUSED):
			if answers == nil {
				answers = gang.ErrRefused
			}
		case errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EHOSTUNREACH) || other != nil:
		default:
			other = err
		}
	}
	switch {
	case other != nil:
		return other
	case answers != nil:
		return answers
	}
	return errs[0]
}

// open begins the session on a connection to the head, which now says whether it knows
// this node.
func (d *dialer) open(ctx context.Context, conn *tls.Conn) (*link, error) {
	client, err := newClient(conn)
	if err != nil {
		conn.Close()
		return nil, err
	}
	streaming, cancel := context.WithCancel(context.Background())
	ctx, stop := context.WithTimeout(ctx, handshake)
	defer stop()
	waiting := context.AfterFunc(ctx, cancel)
	s, err := client.NewStream(streaming, &grpc.StreamDesc{StreamName: method, ServerStreams: true, ClientStreams: true}, "/"+service+"/"+method)
	if err == nil {
		err = welcomed(s)
	}
	if !waiting() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		cancel()
		client.Close()
		conn.Close()
		return nil, fmt.Errorf("it does not go on with this node: %w", reason(err))
	}
	l := newLink(0, address(conn.LocalAddr()), cancel)
	go l.readFrom(s)
	go func() {
		defer close(l.done)
		l.writeTo(s)
		_ = s.CloseSend()
		<-l.read // the head has heard all, or never will
		cancel()
		client.Close()
		conn.Close()
	}()
	return l, nil
}

// welcomed waits for the head's first sign, which it gives to nodes only.
func welcomed(s grpc.ClientStream) error {
	header, err := s.Header()
	if err == nil && header == nil {
		err = s.RecvMsg(new(gang.Message))
	}
	return err
}

// newClient is gRPC on a connection that is there, and on no other.
func newClient(conn net.Conn) (*grpc.ClientConn, error) {
	once := make(chan net.Conn, 1)
	once <- conn
	return grpc.NewClient("passthrough:///"+conn.RemoteAddr().String(),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			select {
			case c := <-once:
				return c, nil
			default:
				return nil, errHungUp
			}
		}),
		grpc.WithTransportCredentials(insecure.NewCredentials()), // the connection is TLS already
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(), grpc.WithIdleTimeout(0), grpc.WithMaxHeaderListSize(maxHeaders),
		grpc.WithReadBufferSize(buffer), grpc.WithWriteBufferSize(buffer),
		grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(window),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: silent, Timeout: unanswered}),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(codec{}), grpc.MaxCallRecvMsgSize(MaxMessage)),
	)
}
