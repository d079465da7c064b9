package wire

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"time"
)

const (
	// mostMistakes are kept until somebody asks for them; further ones are dropped.
	mostMistakes = 64
	// knockBound is how long all places of a head may take to answer, and hearBound how long
	// the other side may take to say that it refuses.
	knockBound, hearBound = 5 * time.Second, time.Second
)

// A Mistake is a gpurun that says that it is a node of this launch, and cannot be one: it does
// not know what the nodes know each other by, or it is another head that does, Node 0. Addr is
// where it is. That it is no stranger is not proved but of a head.
type Mistake struct {
	Node int
	Addr string
}

// Mistakes are gpuruns that came to the head, and say that they are a node of this launch
// without being one.
func (c *Credentials) Mistakes() <-chan Mistake { return c.mistakes }

// mistaken looks at who was refused: a node that does not know the launch's secret, or another
// head, which knows it.
func (c *Credentials) mistaken(s tls.ConnectionState, from net.Addr) {
	node, says := c.claims(s)
	if !says || c.node != 0 || bytes.Equal(s.PeerCertificates[0].Raw, c.own.Certificate[0]) {
		return
	}
	use := x509.ExtKeyUsageClientAuth
	if node == 0 {
		use = x509.ExtKeyUsageServerAuth
	}
	if _, err := c.whose(s.PeerCertificates[0], use); (err == nil) != (node == 0) {
		return
	}
	select {
	case c.mistakes <- Mistake{Node: node, Addr: address(from)}:
	default:
	}
}

// Rival is where another head of this launch listens, which knows its secret, of the places at
// which node 0 is to be; empty where there is none.
func Rival(ctx context.Context, c *Credentials, host string, port int) string {
	if c.tag == "" {
		return ""
	}
	return c.knock(ctx, host, port, func(s tls.ConnectionState) bool {
		_, err := c.whose(s.PeerCertificates[0], x509.ExtKeyUsageServerAuth)
		return err == nil
	})
}

// headThere says where the head listens, for a node that does not know its secret yet. The head
// learns from it that this node is there.
func (c *Credentials) headThere(o Options) func(context.Context) string {
	return func(ctx context.Context) string {
		tag := tagOf(o.Run)
		own, err := selfSigned(name(o.Node), tag)
		if err != nil || o.Head == "" {
			return ""
		}
		stranger := &Credentials{node: o.Node, nodes: o.Nodes, ports: c.ports, own: own, tag: tag}
		return stranger.knock(ctx, o.Head, o.HeadPort, func(tls.ConnectionState) bool { return true })
	}
}

// knock is the first place at which a head of this launch listens that counts, but for this
// process's own, behind which it does not look.
func (c *Credentials) knock(ctx context.Context, host string, port int, counts func(tls.ConnectionState) bool) string {
	ctx, cancel := context.WithTimeout(ctx, knockBound)
	defer cancel()
	d := NewDialer(c, host, port)
	places, err := d.places(ctx)
	if err != nil {
		return ""
	}
	for _, place := range places {
		s, err := d.look(ctx, place)
		if err != nil {
			continue
		}
		node, says := c.claims(s)
		switch {
		case !says || node != 0:
		case bytes.Equal(s.PeerCertificates[0].Raw, c.own.Certificate[0]):
			return ""
		case counts(s):
			return place
		}
	}
	return ""
}

// look asks who listens at a place, trusts nobody there, and shows this node's certificate.
func (d *Dialer) look(ctx context.Context, place string) (tls.ConnectionState, error) {
	raw, err := (&net.Dialer{KeepAlive: -1}).DialContext(ctx, "tcp", place)
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer raw.Close()
	config := d.c.tlsConfig(new(int))
	config.VerifyConnection = nil
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		return tls.ConnectionState{}, fmt.Errorf("%s: %w", place, err)
	}
	hearRefusal(conn)
	return conn.ConnectionState(), nil
}

// hearRefusal waits until the other side has read who this is: what is closed before may never
// be read.
func hearRefusal(conn *tls.Conn) {
	_ = conn.SetReadDeadline(time.Now().Add(hearBound)) // else the bound of the connection counts
	_, _ = conn.Read(make([]byte, 1))
}
