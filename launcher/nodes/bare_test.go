package nodes

import (
	"bufio"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// bareAt, in the environment of this test, makes it the other side: all sessions but the
// head's end, to the address that it names.
const bareAt = "GPURUN_TEST_BARE_AT"

// BenchmarkBareSessions is the peer of BenchmarkThousandNodes: as many HTTP/2 streams of
// the standard library under mutual TLS, on which the messages of one rescue go there and back, and nobody thinks about
// them. It prints how long both took, in seconds, and what the head held, in MB.
func BenchmarkBareSessions(b *testing.B) {
	if at := os.Getenv(bareAt); at != "" {
		bareNodes(b, at)
		return
	}
	h := &bareHead{came: make(chan bareMessage, manyNodes)}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(h.serve), TLSConfig: bareTLS(b, "head"), ReadHeaderTimeout: time.Minute}
	var serving sync.WaitGroup
	defer serving.Wait()
	serving.Go(func() { _ = server.ServeTLS(listener, "", "") })
	defer server.Close()

	began := time.Now()
	others := benchmark(b.Name(), bareAt+"="+listener.Addr().String())
	if err := others.Start(); err != nil {
		b.Fatal(err)
	}
	h.hears(b, "join")
	joined := time.Since(began)
	h.asks(b, "prepare", "start")
	began = time.Now()
	h.asks(b, "stop", "prepare", "start")
	fmt.Printf("bare %.3f %.3f %.0f\n", joined.Seconds(), time.Since(began).Seconds(), held(b))
	h.all(b, "final")
	if err := others.Wait(); err != nil {
		b.Error(err)
	}
}

// benchmark runs one of this package in a separate process, with more in its environment.
func benchmark(name string, env ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], "-test.run=^$", "-test.bench=^"+name+"$", "-test.benchtime=1x")
	cmd.Env, cmd.Stderr = append(os.Environ(), env...), os.Stderr
	return cmd
}

// bareFigures are what BenchmarkBareSessions measures, in a separate process.
func bareFigures(b *testing.B) (joined, rescue, mb float64) {
	out, err := benchmark("BenchmarkBareSessions").Output()
	if err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	for lines := bufio.NewScanner(strings.NewReader(string(out))); lines.Scan(); {
		if n, _ := fmt.Sscanf(lines.Text(), "bare %f %f %f", &joined, &rescue, &mb); n == 3 {
			return joined, rescue, mb
		}
	}
	b.Fatalf("no figures: %s", out)
	return 0, 0, 0
}

// A bareMessage is of a kind, and has a text.
type bareMessage struct{ Kind, Text string }

// A bareHead has all streams.
type bareHead struct {
	came chan bareMessage
	mu   sync.Mutex
	out  []bareStream
}

// A bareStream is one way of a stream.
type bareStream struct {
	*json.Encoder
	flush func() error
}

func (s bareStream) send(m bareMessage) error {
	if err := s.Encode(m); err != nil {
		return err
	}
	return s.flush()
}

func (h *bareHead) serve(w http.ResponseWriter, r *http.Request) {
	c := http.NewResponseController(w)
	if err := errors.Join(c.EnableFullDuplex(), c.Flush()); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return
	}
	h.mu.Lock()
	h.out = append(h.out, bareStream{json.NewEncoder(w), c.Flush})
	h.mu.Unlock()
	for in := json.NewDecoder(r.Body); ; {
		var m bareMessage
		if err := in.Decode(&m); err != nil {
			return
		}
		h.came <- m
	}
}

// all sends one message to all.
func (h *bareHead) all(b *testing.B, kind string) {
	m := bareMessage{kind, strings.Repeat("p", 4<<10)}
	for _, s := range h.out {
		if err := s.send(m); err != nil && kind != "final" { // after which a node goes
			b.Fatal(err)
		}
	}
}

// hears waits for a message from each.
func (h *bareHead) hears(b *testing.B, kind string) {
	late := time.After(time.Minute)
	for range manyNodes {
		select {
		case m := <-h.came:
			if m.Kind != kind {
				b.Fatalf("%q instead of %q", m.Kind, kind)
			}
		case <-late:
			b.Fatalf("not all nodes say %q", kind)
		}
	}
}

// asks sends messages to all, each once all have answered the one before.
func (h *bareHead) asks(b *testing.B, kinds ...string) {
	for _, kind := range kinds {
		h.all(b, kind)
		h.hears(b, kind)
	}
}

// bareNodes are the other side.
func bareNodes(b *testing.B, at string) {
	var nodes sync.WaitGroup
	for range manyNodes {
		nodes.Go(func() {
			config := bareTLS(b, "node")
			config.NextProtos = []string{"h2"}
			up, text := io.Pipe()
			request, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "https://"+at, up)
			if err != nil {
				b.Error(err)
				return
			}
			transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
			defer transport.CloseIdleConnections()
			answer, err := transport.RoundTrip(request)
			if err != nil {
				b.Error(err)
				return
			}
			defer answer.Body.Close()
			out, in := json.NewEncoder(text), json.NewDecoder(answer.Body)
			m := bareMessage{"join", strings.Repeat("j", 1<<10)}
			for err == nil && m.Kind != "final" {
				if err = out.Encode(m); err == nil {
					err = in.Decode(&m)
				}
				m.Text = ""
				if m.Kind == "stop" {
					m.Text = strings.Repeat("e", 8<<10)
				}
			}
			if err != nil {
				b.Error(err)
			}
		})
	}
	nodes.Wait()
}

// bareTLS proves by a key that both sides derive that they belong together.
func bareTLS(b *testing.B, name string) *tls.Config {
	key := ed25519.NewKeyFromSeed([]byte(strings.Repeat("s", ed25519.SeedSize)))
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bare"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotAfter: time.Now().Add(time.Hour)}
	parsed, err := x509.ParseCertificate(bareSigned(b, ca, ca, key.Public(), key))
	if err != nil {
		b.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	public, own, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotAfter: ca.NotAfter}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, CurvePreferences: []tls.CurveID{tls.X25519}, ServerName: "head", RootCAs: pool, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
		Certificates: []tls.Certificate{{Certificate: [][]byte{bareSigned(b, leaf, parsed, public, key)}, PrivateKey: own}},
	}
}

func bareSigned(b *testing.B, template, by *x509.Certificate, public any, with ed25519.PrivateKey) []byte {
	der, err := x509.CreateCertificate(rand.Reader, template, by, public, with)
	if err != nil {
		b.Fatal(err)
	}
	return der
}
