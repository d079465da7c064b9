package nodes

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"syscall"
	"time"
)

const (
	connect = 10 * time.Second
	// stagger is the delay before the next place is tried in parallel. It is long, because a head to which a
	// thousand nodes connect at once answers slowly.
	stagger   = 2 * time.Second
	mostHosts = 16 // addresses of one name
)

// A Dialer reaches the head from one node.
type Dialer struct {
	c     *Credentials
	host  string
	ports []int
}

// NewDialer makes a Dialer to the head on a host. With port 0 it tries the ports that all nodes can compute.
// It looks up the host's name for each connection.
func NewDialer(c *Credentials, host string, port int) *Dialer {
	if port != 0 {
		return &Dialer{c, host, []int{port}}
	}
	return &Dialer{c, host, c.ports}
}

// Dial makes one connection. The error is ErrRefused if the machine answers but runs no head, and
// ErrMistrusted if the head has another secret.
func (d *Dialer) Dial(ctx context.Context) (*Link, error) {
	places, err := d.places(ctx)
	if err != nil {
		return nil, err
	}
	conn, errs := d.race(ctx, places)
	switch {
	case ctx.Err() != nil:
		if conn != nil {
			conn.Close()
		}
		return nil, context.Cause(ctx)
	case conn == nil:
		return nil, fmt.Errorf("reach node 0 on %s: %w", d.host, judge(errs))
	}
	l, err := open(ctx, conn)
	if err != nil {
		return nil, fmt.Errorf("reach node 0 on %s: %w", conn.RemoteAddr(), err)
	}
	return l, nil
}

// places returns all addresses of the head's machine, the likeliest port first.
func (d *Dialer) places(ctx context.Context) (places []string, err error) {
	hosts, err := net.DefaultResolver.LookupHost(ctx, d.host)
	if err != nil && len(d.c.hosts) == 0 {
		return nil, fmt.Errorf("look up the host of node 0: %w", err)
	}
	hosts = hosts[:min(len(hosts), mostHosts)]
	for _, known := range d.c.hosts {
		if !slices.Contains(hosts, known) {
			hosts = append(hosts, known)
		}
	}
	for _, port := range d.ports {
		for _, host := range hosts {
			places = append(places, net.JoinHostPort(host, strconv.Itoa(port)))
		}
	}
	return places, nil
}

// race tries one place after the other, and keeps the first connection to the head. It tries the next place
// as soon as one has failed, or after a delay.
func (d *Dialer) race(ctx context.Context, places []string) (*tls.Conn, []error) {
	type outcome struct {
		conn *tls.Conn
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	outcomes, pending := make(chan outcome, len(places)), 0
	defer func() {
		cancel()
		for range pending {
			if o := <-outcomes; o.conn != nil {
				o.conn.Close()
			}
		}
	}()
	var errs []error
	for len(places) > 0 || pending > 0 {
		var next <-chan time.Time
		if len(places) > 0 {
			place := places[0]
			go func() {
				conn, err := d.try(ctx, place)
				outcomes <- outcome{conn, err}
			}()
			places, pending, next = places[1:], pending+1, time.After(stagger)
		}
		select {
		case o := <-outcomes:
			pending--
			if o.err == nil {
				return o.conn, nil
			}
			errs = append(errs, o.err)
		case <-next:
		}
	}
	return nil, errs
}

// ErrMistrusted: the head has another secret than this node. ErrRefused: the head's machine answers, but runs
// no head.
var (
	ErrMistrusted = errors.New("node 0 answers, but has another secret than this node")
	ErrRefused    = errors.New("no process listens there")
)

// errNotHead: a place answers, and is not the head's.
var errNotHead = errors.New("the process that answers is not node 0 of this launch")

// refusalBound is how long a node with another secret waits until the head has read its certificate.
const refusalBound = time.Second

// try connects, and requires a proof that the other side is the head.
func (d *Dialer) try(ctx context.Context, place string) (*tls.Conn, error) {
	dial := net.Dialer{Timeout: connect, KeepAlive: -1}
	raw, err := dial.DialContext(ctx, "tcp", place)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, handshake)
	defer cancel()
	mistrusted := false
	conn := tls.Client(raw, d.c.tlsConfig(func(s tls.ConnectionState) error {
		_, err := d.c.peer(s)
		_, claims := d.c.claims(s)
		if mistrusted = err != nil && claims; mistrusted {
			return nil // the handshake continues, so that the head can name this node
		}
		return err
	}))
	switch err := conn.HandshakeContext(ctx); {
	case err != nil && ctx.Err() != nil: // the head may be suspended, or the network cut
		raw.Close()
		return nil, fmt.Errorf("%s does not answer: %w", place, err)
	case err != nil:
		raw.Close()
		return nil, fmt.Errorf("%s: %w: %w", place, errNotHead, err)
	case mistrusted:
		_ = raw.SetReadDeadline(time.Now().Add(refusalBound))
		_, _ = conn.Read(make([]byte, 1))
		raw.Close()
		return nil, fmt.Errorf("%s: %w", place, ErrMistrusted)
	}
	return conn, nil
}

// judge combines the errors of all places: ErrRefused if every reachable place answers, and none is the head.
func judge(errs []error) error {
	var answers, other error
	for _, err := range errs {
		switch {
		case errors.Is(err, ErrMistrusted):
			return err
		case errors.Is(err, errNotHead):
			answers = fmt.Errorf("%w: %w", ErrRefused, err)
		case errors.Is(err, syscall.ECONNREFUSED):
			if answers == nil {
				answers = ErrRefused
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

// open waits for the head's first message on a connection, with which it accepts this node.
func open(ctx context.Context, conn *tls.Conn) (*Link, error) {
	waiting := context.AfterFunc(ctx, func() { conn.NetConn().Close() })
	first, err := readFrame(conn, handshake)
	if !waiting() && err == nil {
		err = context.Cause(ctx)
	}
	if err == nil && len(first) > 0 {
		err = errNotHead
	}
	if err != nil {
		conn.NetConn().Close()
		return nil, fmt.Errorf("it does not accept this node: %w", reason(err))
	}
	return NewLink(conn, 0), nil
}
