package wire

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Certificates are valid for the longest possible time, because the clocks of nodes may differ.
var (
	notBefore = time.Unix(0, 0).UTC()
	notAfter  = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	anyTime   = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
)

// errStranger: the certificate does not belong to a node of the launch.
var errStranger = errors.New("the certificate belongs to no node of this launch")

// A whose function returns the node that a certificate belongs to. use is the node's use of it, as server or
// client.
type whose func(cert *x509.Certificate, use x509.ExtKeyUsage) (node int, err error)

// name returns a node's name in its certificate.
func name(node int) string {
	if node == 0 {
		return "head"
	}
	return "node-" + strconv.Itoa(node)
}

// number returns the node's number in a certificate.
func number(cert *x509.Certificate) (int, error) {
	n, err := strconv.Atoi(strings.TrimPrefix(cert.Subject.CommonName, "node-"))
	switch {
	case cert.Subject.CommonName == name(0):
		return 0, nil
	case err != nil || n < 1 || cert.Subject.CommonName != name(n):
		return 0, errStranger
	}
	return n, nil
}

// An authority signs certificates for one launch. All nodes derive the same one from their secret.
type authority struct {
	key  ed25519.PrivateKey
	cert *x509.Certificate
	pool *x509.CertPool // contains only cert
	tag  string         // of the launch
}

func newAuthority(secret []byte, run string) (*authority, error) {
	seed, err := hkdf.Key(sha256.New, secret, []byte("gpurun/1"), "ca|"+run, ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("derive the launch's key: %w", err)
	}
	key := ed25519.NewKeyFromSeed(seed)
	template := certificate("gpurun")
	template.IsCA, template.KeyUsage, template.ExtKeyUsage = true, x509.KeyUsageCertSign, nil
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make the launch's certificate: %w", err)
	}
	parsed, err := x509.ParseCertificate(cert)
	if err != nil {
		return nil, fmt.Errorf("read the launch's certificate: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return &authority{key, parsed, pool, tagOf(run)}, nil
}

func (a *authority) sign(name string) (tls.Certificate, error) {
	return signed(name, a.cert, a.key, a.tag)
}

func (a *authority) whose(cert *x509.Certificate, use x509.ExtKeyUsage) (int, error) {
	if _, err := cert.Verify(x509.VerifyOptions{Roots: a.pool, CurrentTime: anyTime, KeyUsages: []x509.ExtKeyUsage{use}}); err != nil {
		return 0, errStranger
	}
	return number(cert)
}

// selfSigned makes a certificate that others recognise only by its fingerprint.
func selfSigned(name string, tag ...string) (tls.Certificate, error) {
	return signed(name, nil, nil, tag...)
}

func signed(name string, by *x509.Certificate, with ed25519.PrivateKey, tag ...string) (tls.Certificate, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make this node's key: %w", err)
	}
	template := certificate(name, tag...)
	if by == nil {
		by, with = template, private
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by, public, with)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make this node's certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}, nil
}

// certificate returns the template of all certificates. The head is a server, the others are clients.
func certificate(of string, tag ...string) *x509.Certificate {
	use := x509.ExtKeyUsageClientAuth
	if of == name(0) {
		use = x509.ExtKeyUsageServerAuth
	}
	return &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: of, Organization: tag}, NotBefore: notBefore, NotAfter: notAfter,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{use},
	}
}

// tagOf returns the launch's tag, which its certificates show next to the node. The tag proves nothing. It
// distinguishes a gpurun of the launch that has another secret from a stranger.
func tagOf(run string) string {
	sum := sha256.Sum256([]byte("gpurun launch " + run))
	return hex.EncodeToString(sum[:8])
}

// claims returns the node of this launch that a certificate names; false if it names none.
func (c *Credentials) claims(s tls.ConnectionState) (node int, says bool) {
	if len(s.PeerCertificates) == 0 || c.tag == "" || !slices.Contains(s.PeerCertificates[0].Subject.Organization, c.tag) {
		return 0, false
	}
	node, err := number(s.PeerCertificates[0])
	return node, err == nil
}

type fingerprint = [sha256.Size]byte

// known recognises nodes by their published cards.
func known(cards []card) whose {
	nodes := map[fingerprint]int{}
	for node, c := range cards {
		nodes[c.Fingerprint] = node
	}
	return func(cert *x509.Certificate, _ x509.ExtKeyUsage) (int, error) {
		node, ok := nodes[sha256.Sum256(cert.Raw)]
		if !ok {
			return 0, errStranger
		}
		return node, nil
	}
}

// tlsConfig returns the configuration of one connection, for either side. The handshake sets peer to the node
// at the other end. Instead of host names and authorities, it checks nodes.
//
// The key exchange is X25519, or P-256 if only FIPS 140 algorithms may be used. Go's default adds ML-KEM,
// which protects recorded traffic for decades and takes as long as the rest of the handshake. It is not
// needed: these messages are useless after the launch.
func (c *Credentials) tlsConfig(peer *int) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{c.own}, NextProtos: []string{"gpurun"}, SessionTicketsDisabled: true,
		CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP256}, ClientAuth: tls.RequireAnyClientCert, InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) (err error) {
			*peer, err = c.peer(s)
			return err
		},
	}
}

// peer returns the node at the other end of a connection. A follower accepts only the head, and the head only
// followers.
func (c *Credentials) peer(s tls.ConnectionState) (int, error) {
	if len(s.PeerCertificates) == 0 {
		return 0, errStranger
	}
	use := x509.ExtKeyUsageServerAuth
	if c.node == 0 {
		use = x509.ExtKeyUsageClientAuth
	}
	node, err := c.whose(s.PeerCertificates[0], use)
	if err != nil {
		return 0, err
	}
	if (node == 0) == (c.node == 0) || node >= c.nodes {
		return 0, errStranger
	}
	return node, nil
}
