package nodes

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

// errStranger: the certificate does not belong to a node of the launch.
var errStranger = errors.New("the certificate belongs to no node of this launch")

// name returns a node's name in its certificate.
func name(node int) string { return "node-" + strconv.Itoa(node) }

// number returns the node's number in a certificate.
func number(cert *x509.Certificate) (int, error) {
	n, err := strconv.Atoi(strings.TrimPrefix(cert.Subject.CommonName, "node-"))
	if err != nil || n < 0 || cert.Subject.CommonName != name(n) {
		return 0, errStranger
	}
	return n, nil
}

// launchKey derives the key that all nodes with one secret share. Another launch has another key.
func launchKey(secret []byte, run string) (ed25519.PrivateKey, error) {
	seed, err := hkdf.Key(sha256.New, secret, []byte("gpurun/2"), "node|"+run, ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("derive the launch's key: %w", err)
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// certificate makes a node's certificate, which its own key signs. It is valid for the longest possible time,
// because the clocks of nodes may differ.
func certificate(node int, key ed25519.PrivateKey, tag string) (tls.Certificate, error) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC),
		Subject: pkix.Name{CommonName: name(node), Organization: []string{tag}},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make this node's certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// tagOf returns the launch's tag, which its certificates show next to the node. The tag proves nothing. It
// distinguishes a gpurun of the launch that has another secret from a stranger.
func tagOf(run string) string {
	sum := sha256.Sum256([]byte("gpurun launch " + run))
	return hex.EncodeToString(sum[:8])
}

// claims returns the node of this launch that a peer's certificate names; false if it names none.
func (c *Credentials) claims(s tls.ConnectionState) (node int, ok bool) {
	if len(s.PeerCertificates) == 0 || c.tag == "" {
		return 0, false
	}
	cert := s.PeerCertificates[0]
	if !slices.Contains(cert.Subject.Organization, c.tag) {
		return 0, false
	}
	node, err := number(cert)
	return node, err == nil && (node == 0) != (c.node == 0)
}

// peer returns the node at the other end of a connection. A follower accepts only the head, and the head only
// followers.
func (c *Credentials) peer(s tls.ConnectionState) (int, error) {
	if len(s.PeerCertificates) == 0 || !c.trusts(s.PeerCertificates[0]) {
		return 0, errStranger
	}
	node, err := number(s.PeerCertificates[0])
	if err != nil || (node == 0) == (c.node == 0) || node >= c.nodes {
		return 0, errStranger
	}
	return node, nil
}

// tlsConfig returns the configuration of one connection, for either side. verify gets the other side's
// certificate, which nothing else checks. TLS proves that the other side has the certificate's key.
//
// The key exchange is X25519, or P-256 if only FIPS 140 algorithms may be used. Go's default adds ML-KEM,
// which protects recorded traffic for decades and takes as long as the rest of the handshake. It is not
// needed: these messages are useless after the launch.
func (c *Credentials) tlsConfig(verify func(tls.ConnectionState) error) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP256},
		Certificates: []tls.Certificate{c.own}, NextProtos: []string{"gpurun"}, SessionTicketsDisabled: true,
		ClientAuth: tls.RequireAnyClientCert, InsecureSkipVerify: true, VerifyConnection: verify,
	}
}
