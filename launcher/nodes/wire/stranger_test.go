package wire

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// at is where a launch's head listens.
func (l *testLaunch) at() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(l.port)) }

// stillServes makes sure that a node gets through, whatever strangers do.
func (l *testLaunch) stillServes(t *testing.T) {
	t.Helper()
	head, follower := l.join(t, 1)
	send(t, follower, "bye")
	receive(t, head)
}

// refused waits until the head has ended a connection, and returns what it sent.
func refused(t *testing.T, c net.Conn) []byte {
	t.Helper()
	defer c.Close()
	if err := c.SetReadDeadline(time.Now().Add(2 * handshake)); err != nil {
		t.Fatal(err)
	}
	said, err := io.ReadAll(c)
	if errors.Is(err, iotest.ErrTimeout) || err != nil && strings.Contains(err.Error(), "timeout") {
		t.Errorf("the head keeps the connection: %v", err)
	}
	return said
}

// Who is not a node of the launch gets nothing through a handshake, and is not heard.
func TestStrangers(t *testing.T) {
	l := newLaunch(t, 3)
	authorityOf := func(secret, run string) *authority {
		a, err := newAuthority([]byte(secret), run)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	key, err := parseSecret(testSecret)
	if err != nil {
		t.Fatal(err)
	}
	ours := authorityOf(string(key), "run")
	by := func(a *authority, name string) *tls.Certificate {
		c, err := a.sign(name)
		if err != nil {
			t.Fatal(err)
		}
		return &c
	}
	alone, err := selfSigned("node-1")
	if err != nil {
		t.Fatal(err)
	}
	for what, cert := range map[string]*tls.Certificate{
		"no certificate":           nil,
		"another secret":           by(authorityOf(strings.Repeat("x", 32), "run"), "node-1"),
		"another run":              by(authorityOf(string(key), "run2"), "node-1"),
		"its own certificate":      &alone,
		"a head":                   by(ours, "head"),
		"a node that there is not": by(ours, "node-3"),
		"a node too far":           by(ours, "node-1000000000000000000000"),
		"a negative node":          by(ours, "node--1"),
		"a node with a zero":       by(ours, "node-01"),
		"another name":             by(ours, "nobody"),
		"a server":                 serverCertificate(t, ours, "node-1"),
	} {
		config := &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"gpurun"}, InsecureSkipVerify: true}
		if cert != nil {
			config.Certificates = []tls.Certificate{*cert}
		}
		conn, err := tls.Dial("tcp", l.at(), config)
		if err != nil {
			continue // refused at once
		}
		if said := refused(t, conn); len(said) > 0 {
			t.Errorf("%s: the head says %q", what, said)
		}
	}
	l.stillServes(t)
	for _, wrong := range []*Credentials{
		credentialsOf(t, strings.Repeat("ab", 32), "run", 1, 3), credentialsOf(t, testSecret, "run2", 1, 3), credentialsOf(t, testSecret, "run", 3, 4),
	} {
		link, err := NewDialer(wrong, "127.0.0.1", l.port).Dial(t.Context())
		if err == nil {
			link.Close()
			t.Error("a node of another launch got through")
		}
	}
}

// serverCertificate is one of a node that was meant for a head's side.
func serverCertificate(t *testing.T, a *authority, of string) *tls.Certificate {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := certificate(of)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, public, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}
}

// Text of any kind, and TLS of another version, end in the handshake.
func TestGarbage(t *testing.T) {
	l := newLaunch(t, 2)
	for what, text := range map[string]string{
		"http":      "GET / HTTP/1.1\r\nHost: head\r\n\r\n",
		"http2":     "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"zeros":     string(make([]byte, 1<<16)),
		"tls alert": "\x15\x03\x03\x00\x02\x02\x28",
		"large":     "\x16\x03\x01\xff\xff" + strings.Repeat("x", 1<<16),
	} {
		conn, err := net.Dial("tcp", l.at())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, text) // the head may have ended the connection meanwhile
		if said := refused(t, conn); strings.Contains(string(said), "HTTP") {
			t.Errorf("%s: the head says %q", what, said)
		}
	}
	old := credentialsOf(t, testSecret, "run", 1, 2).tlsConfig(new(int))
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	if conn, err := tls.Dial("tcp", l.at(), old); err == nil {
		conn.Close()
		t.Error("TLS 1.2 is taken")
	}
	l.stillServes(t)
}

// A recorded connection of a node cannot be replayed: its records are invalid in another.
func TestAReplay(t *testing.T) {
	l := newLaunch(t, 2)
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer front.Close()
	heard := make(chan []byte, 1)
	go func() { heard <- overhear(front, l.at()) }()
	follower, err := NewDialer(credentialsOf(t, testSecret, "run", 1, 2), "127.0.0.1", front.Addr().(*net.TCPAddr).Port).Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	head, err := l.links.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	send(t, follower, "bye")
	receive(t, head)
	head.Close()
	follower.Close()
	conn, err := net.Dial("tcp", l.at())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = conn.Write(<-heard)
	refused(t, conn)
	l.stillServes(t)
}

// overhear passes one connection on, and returns what its client sent.
func overhear(front net.Listener, to string) []byte {
	client, err := front.Accept()
	if err != nil {
		return nil
	}
	server, err := net.Dial("tcp", to)
	if err != nil {
		return nil
	}
	back := make(chan struct{})
	go func() { defer close(back); _, _ = io.Copy(client, server); client.Close() }()
	var said strings.Builder
	_, _ = io.Copy(io.MultiWriter(server, &said), client)
	server.Close()
	<-back
	return []byte(said.String())
}

// Clients that begin handshakes and do not continue block no node.
func TestSlowHandshakes(t *testing.T) {
	l := newLaunch(t, 2)
	for range 2 * (2 + spareHandshakes) {
		conn, err := net.Dial("tcp", l.at())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = conn.Write([]byte{0x16})
	}
	l.stillServes(t)
}

// Of too many the oldest goes, and of those that are through none.
func TestTooManyHandshakes(t *testing.T) {
	half := halfOpen{most: 2}
	var near, far [4]net.Conn
	for i := range near {
		near[i], far[i] = net.Pipe()
		defer near[i].Close()
		half.add(far[i])
		if i == 0 {
			half.remove(far[i])
		}
	}
	for i, open := range []bool{true, false, true, true} {
		if err := far[i].SetDeadline(time.Time{}); (err == nil) != open {
			t.Errorf("connection %d: %v", i, err)
		}
	}
	half.close()
	if far[0].SetDeadline(time.Time{}) != nil || far[3].SetDeadline(time.Time{}) == nil {
		t.Error("at the end those go that are not through")
	}
	far[0].Close()
}

// A node that violates the protocol harms no other node: a message that is too large, and a partial message.
func TestANodeThatMisbehaves(t *testing.T) {
	l := newLaunch(t, 3)
	for want, text := range map[string]string{"too large": "\xff\xff\xff\xff" + strings.Repeat("x", MaxMessage), "EOF": "\x00\x00\x00\x09short"} {
		conn, err := tls.Dial("tcp", l.at(), credentialsOf(t, testSecret, "run", 2, l.nodes).tlsConfig(new(int)))
		if err != nil {
			t.Fatal(err)
		}
		head, err := l.links.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.ReadFull(conn, make([]byte, len(welcome)))
		_, _ = io.WriteString(conn, text) // the head may have ended the connection meanwhile
		conn.NetConn().(*net.TCPConn).CloseWrite()
		if got, err := head.Receive(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v", want, got, err)
		}
		head.Close()
		conn.Close()
	}
	l.stillServes(t)
}

// A follower hears the head only: another node with the same secret, or with none, that has
// taken the head's port is passed over.
func TestAFalseHead(t *testing.T) {
	key, err := parseSecret(testSecret)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := newAuthority(key, "run")
	if err != nil {
		t.Fatal(err)
	}
	node, err := ours.sign("node-2")
	if err != nil {
		t.Fatal(err)
	}
	alone, err := selfSigned("head")
	if err != nil {
		t.Fatal(err)
	}
	for what, cert := range map[string]tls.Certificate{"a follower": node, "a stranger": alone} {
		front, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"gpurun"}})
		if err != nil {
			t.Fatal(err)
		}
		accepted := make(chan struct{})
		go func() {
			defer close(accepted)
			if c, err := front.Accept(); err == nil {
				_ = c.(*tls.Conn).Handshake()
				c.Close()
			}
		}()
		_, err = NewDialer(credentialsOf(t, testSecret, "run", 1, 3), "127.0.0.1", front.Addr().(*net.TCPAddr).Port).Dial(t.Context())
		if !errors.Is(err, ErrRefused) || !errors.Is(err, errNotHead) {
			t.Errorf("%s in the head's place: %v", what, err)
		}
		front.Close()
		<-accepted
	}
}

// Certificates are good at any time of any clock, and no two processes have the same.
func TestCertificatesAndClocks(t *testing.T) {
	a, err := newAuthority(make([]byte, secretBytes), "run")
	if err != nil {
		t.Fatal(err)
	}
	one, err := a.sign("node-1")
	if err != nil {
		t.Fatal(err)
	}
	two, err := a.sign("node-1")
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(one.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	if parsed.NotBefore.Year() != 1970 || parsed.NotAfter.Year() != 9999 || parsed.SerialNumber.Cmp(big.NewInt(1)) != 0 {
		t.Errorf("%v to %v", parsed.NotBefore, parsed.NotAfter)
	}
	if one.PrivateKey.(ed25519.PrivateKey).Equal(two.PrivateKey) {
		t.Error("two processes have the same key")
	}
	if n, err := a.whose(parsed, x509.ExtKeyUsageClientAuth); n != 1 || err != nil {
		t.Errorf("node %d, %v", n, err)
	}
	config := credentialsOf(t, testSecret, "run", 0, 2).tlsConfig(new(int))
	if config.Time != nil || !config.InsecureSkipVerify || config.VerifyConnection == nil {
		t.Error("clocks are asked, or nobody is")
	}
}
