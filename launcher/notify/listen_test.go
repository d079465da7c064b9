package notify

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// served are metrics on a port that the system chose, and the address that people see.
func served(t *testing.T) (m *Exporter, address string) {
	t.Helper()
	var notes []string
	m = made(t, strategy.Metrics{Listen: "127.0.0.1:0"}, nil)
	m.Start(nil, func(text string) { notes = append(notes, text) })
	tell(m, nil, metricsBegan)
	if len(notes) != 1 {
		t.Fatalf("notes: %q", notes)
	}
	address, said := strings.CutPrefix(notes[0], "the metrics are served on http://")
	if !said || !strings.HasSuffix(address, "/metrics") {
		t.Fatalf("note: %q", notes[0])
	}
	return m, strings.TrimSuffix(address, "/metrics")
}

// ask makes one request on a new connection, and returns its status and its body.
func ask(t *testing.T, address, request string) (int, string) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := fmt.Fprintf(c, "%s\r\nHost: x\r\nConnection: close\r\n\r\n", request); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

func TestListen(t *testing.T) {
	m, address := served(t)
	tell(m, sampled(), metricsEvents...)
	if code, body := ask(t, address, "GET /metrics HTTP/1.1"); code != http.StatusOK || !strings.Contains(body, "gpurun_attempts_total"+both+" 2\n") {
		t.Errorf("%d %s", code, body)
	}
	for request, want := range map[string]int{
		"GET / HTTP/1.1":         http.StatusNotFound,
		"POST /metrics HTTP/1.1": http.StatusMethodNotAllowed,
	} {
		if code, _ := ask(t, address, request); code != want {
			t.Errorf("%.40q: %d, want %d", request, code, want)
		}
	}
	long, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	long.Header.Set("X", strings.Repeat("x", 2*largestHeader))
	if answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(long); err == nil { // else it was hung up on
		if answer.Body.Close(); answer.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("a long header: %s", answer.Status)
		}
	}

	second := made(t, strategy.Metrics{Listen: address}, nil)
	var notes []string
	second.Start(nil, func(text string) { notes = append(notes, text) })
	tell(second, nil, metricsBegan)
	second.Close()
	if len(notes) != 1 || !strings.HasPrefix(notes[0], "warning: no metrics are served: ") || !strings.Contains(notes[0], "address already in use") {
		t.Errorf("a port in use: %q", notes)
	}

	m.Close()
	if c, err := net.Dial("tcp", address); err == nil {
		c.Close()
		t.Error("the listener is there after Close")
	}
}

// Clients that connect and never finish their request block neither others nor the end of the run.
func TestHalfOpenClientsBlockNothing(t *testing.T) {
	m, address := served(t)
	tell(m, sampled(), metricsEvents...)
	for i := range 100 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if i%2 == 0 {
			if _, err := io.WriteString(c, "GET /metr"); err != nil {
				t.Logf("client %d was hung up on: %v", i, err)
			}
		}
	}
	began := time.Now()
	if code, body := ask(t, address, "GET /metrics HTTP/1.1"); code != http.StatusOK || !strings.Contains(body, "gpurun_") {
		t.Errorf("%d: %.80q", code, body)
	}
	if took := time.Since(began); took >= headerTimeout {
		t.Errorf("the answer took %s", took)
	}
	m.Close()
}
