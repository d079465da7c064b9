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
	// mostMistakes bounds the mistakes that are kept until they are read. Further ones are dropped.
	mostMistakes = 64
	// knockBound is the time for all places of a head to answer, and refusalBound the time for the other side
	// to refuse.
	knockBound, refusalBound = 5 * time.Second, time.Second
)

// A Mistake is a gpurun that claims to be a node of this launch and cannot be one. Either it does not have
// the nodes' credentials, or it is a second head (Node is 0), which does. Addr is its address. Only a head's
// claim is proved.
type Mistake struct {
	Node int
	Addr string
}

// Mistakes delivers the mistakes that this process found.
func (c *Credentials) Mistakes() <-chan Mistake { return c.mistakes }

// mistaken records a refused connection if it comes from a node of the launch without the secret, or from
// another head that has it.
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

// Rival returns the address of another head of this launch that has its secret, among the places of node 0;
// empty for none.
func Rival(ctx context.Context, c *Credentials, host string, port int) string {
	if c.tag == "" {
		return ""
	}
	return c.knock(ctx, host, port, func(s tls.ConnectionState) bool {
		_, err := c.whose(s.PeerCertificates[0], x509.ExtKeyUsageServerAuth)
		return err == nil
	})
}

// headThere finds the address of the head for a node without its secret. The head learns that this node is there.
func (c *Credentials) headThere(o TrustOptions) func(context.Context) string {
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

// knock returns the first place with a head of this launch for which counts is true. The search ends at this
// process's own place.
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

// look returns the certificate of the process at a place without checking it, and shows this node's.
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
	awaitRefusal(conn)
	return conn.ConnectionState(), nil
}

// awaitRefusal waits until the other side has read this side's certificate. If this side closed earlier, the
// certificate might never be read.
func awaitRefusal(conn *tls.Conn) {
	_ = conn.SetReadDeadline(time.Now().Add(refusalBound)) // without it the connection's own bound applies
	_, _ = conn.Read(make([]byte, 1))
}
