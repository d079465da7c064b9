package nodes

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
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
	sendBody(t, follower, "bye")
	receiveBody(t, head)
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
	key, err := parseSecret(testSecret)
	if err != nil {
		t.Fatal(err)
	}
	named := func(secret, run, name string) *tls.Certificate { return namedCertificate(t, []byte(secret), run, name) }
	for what, cert := range map[string]*tls.Certificate{
		"no certificate":           nil,
		"another secret":           named(strings.Repeat("x", 32), "run", "node-1"),
		"another run":              named(string(key), "run2", "node-1"),
		"a head":                   named(string(key), "run", "node-0"),
		"a node that there is not": named(string(key), "run", "node-3"),
		"a node too far":           named(string(key), "run", "node-1000000000000000000000"),
		"a negative node":          named(string(key), "run", "node--1"),
		"a node with a zero":       named(string(key), "run", "node-01"),
		"another name":             named(string(key), "run", "somebody"),
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

// namedCertificate is a certificate by the key of a launch, with any name.
func namedCertificate(t *testing.T, secret []byte, run, name string) *tls.Certificate {
	t.Helper()
	key, err := launchKey(secret, run)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// Clients that begin handshakes and do not continue block no node, up to a number.
func TestSlowHandshakes(t *testing.T) {
	l := newLaunch(t, 2)
	for range spareHandshakes {
		conn, err := net.Dial("tcp", l.at())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = conn.Write([]byte{0x16})
	}
	l.stillServes(t)
}

// A node that violates the protocol harms no other node: a message that is too large, and a partial message.
func TestANodeThatMisbehaves(t *testing.T) {
	l := newLaunch(t, 3)
	for want, text := range map[string]string{"too large": "\xff\xff\xff\xff" + strings.Repeat("x", MaxMessage), "EOF": "\x00\x00\x00\x09short"} {
		conn, err := tls.Dial("tcp", l.at(), credentialsOf(t, testSecret, "run", 2, l.nodes).testConfig())
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
	for what, cert := range map[string]*tls.Certificate{
		"a follower": namedCertificate(t, key, "run", "node-2"), "a stranger": namedCertificate(t, make([]byte, 32), "run", "node-0"),
	} {
		front, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{*cert}, NextProtos: []string{"gpurun"}})
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

// Certificates are good at any time of any clock. The nodes of a launch have one key, other launches have others.
func TestCertificatesAndClocks(t *testing.T) {
	c := credentialsOf(t, testSecret, "run", 1, 2)
	cert, err := x509.ParseCertificate(c.own.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	if cert.NotBefore.Year() != 1970 || cert.NotAfter.Year() != 9999 {
		t.Errorf("%v to %v", cert.NotBefore, cert.NotAfter)
	}
	for _, test := range []struct {
		secret, run string
		trusts      bool
	}{{testSecret, "run", true}, {testSecret, "run2", false}, {strings.Repeat("ab", 32), "run", false}} {
		if got := credentialsOf(t, test.secret, test.run, 0, 2).trusts(cert); got != test.trusts {
			t.Errorf("%+v: %v", test, got)
		}
	}
	config := c.testConfig()
	if config.Time != nil || !config.InsecureSkipVerify || config.VerifyConnection == nil {
		t.Error("clocks are asked, or nothing is checked")
	}
}
