package notify

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpurun/gpurun/strategy"
)

const secretPath = "/services/T0/very-secret"

var (
	event   = []byte(`{"id":"0123456789abcdef0123456789abcdef","event":"trained","run":"r"}`)
	message = Notification{ID: "0123456789abcdef0123456789abcdef", Event: Trained, Run: "r"}
)

// A desk is a server that checks what it is sent, and answers one way after the other; the
// last way stays.
type desk struct {
	*httptest.Server
	mu   sync.Mutex
	seen int
	ways []http.HandlerFunc
}

func (d *desk) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	mac := hmac.New(sha256.New, []byte("key"))
	mac.Write(body)
	if err != nil || !bytes.Equal(body, event) || r.Method != http.MethodPost || r.Header.Get("X-Gpurun-Delivery") != message.ID ||
		r.Header.Get("X-Gpurun-Signature") != "sha256="+hex.EncodeToString(mac.Sum(nil)) || r.UserAgent() != "gpurun/v9" || r.Header.Get("Content-Type") != "application/json" {
		w.WriteHeader(http.StatusTeapot)
		return
	}
	d.mu.Lock()
	way := d.ways[min(d.seen, len(d.ways)-1)]
	d.seen++
	d.mu.Unlock()
	way(w, r)
}

func (d *desk) asked() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.seen
}

func open(t *testing.T, start func(http.Handler) *httptest.Server, ways ...http.HandlerFunc) *desk {
	d := &desk{ways: ways}
	d.Server = start(d)
	d.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(d.Close)
	return d
}

func webhookTo(url string) *webhook {
	h := newWebhook(strategy.Notify{URL: url, Secret: "key", Timeout: 10 * time.Second}, "v9")
	h.client.RetryWaitMin, h.client.RetryWaitMax = time.Millisecond, time.Millisecond
	return h
}

func answers(status int, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
	}
}

// dies breaks the connection after some bytes.
func dies(bytes string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = io.WriteString(conn, bytes)
		_ = conn.Close()
	}
}

// endless writes until the other end has enough.
func endless(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		for {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	}
}

// What servers do, and what is made of it: how often each is asked, and whether the event
// is sent, refused for good, or kept.
func TestServers(t *testing.T) {
	ok := answers(http.StatusNoContent)
	elsewhere := open(t, httptest.NewServer, ok)
	for name, test := range map[string]struct {
		ways  []http.HandlerFunc
		asked int
		why   string // "" : sent; "!…": refused
	}{
		"takes it":                    {[]http.HandlerFunc{ok}, 1, ""},
		"fails, then takes it":        {[]http.HandlerFunc{answers(500), answers(502), ok}, 3, ""},
		"fails":                       {[]http.HandlerFunc{answers(503)}, tries, "answers 503 Service Unavailable"},
		"is asked too much":           {[]http.HandlerFunc{answers(429, "Retry-After", "0"), ok}, 2, ""},
		"is asked too much for hours": {[]http.HandlerFunc{answers(429, "Retry-After", "7200"), ok}, 1, "answers 429 Too Many Requests"},
		"is asked too much for good":  {[]http.HandlerFunc{answers(429, "Retry-After", "9223372036854775807"), ok}, 1, "answers 429 Too Many Requests"},
		"is not there":                {[]http.HandlerFunc{answers(404)}, 1, "!answers 404 Not Found"},
		"knows nothing of it":         {[]http.HandlerFunc{answers(501)}, 1, "!answers 501 Not Implemented"},
		"sends elsewhere":             {[]http.HandlerFunc{answers(307, "Location", elsewhere.URL+"/x")}, 1, "!it redirects to another host; only redirects within a host are followed"},
		"sends to another door":       {[]http.HandlerFunc{answers(308, "Location", "/x"), ok}, 2, ""},
		"sends in a circle":           {[]http.HandlerFunc{answers(307, "Location", "/x")}, redirects + 1, "!it redirects in a circle"},
		"sends to a page":             {[]http.HandlerFunc{answers(302, "Location", "/x"), ok}, 1, "!it redirects with status 302, which drops the posted body"},
		"sends to nowhere":            {[]http.HandlerFunc{answers(307)}, 1, "!answers 307"},
		"dies mid-answer":             {[]http.HandlerFunc{dies("HTTP/1.1 200 O"), ok}, 2, ""},
		"dies after its answer":       {[]http.HandlerFunc{dies("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nx")}, 1, ""},
		"answers without end":         {[]http.HandlerFunc{endless(200)}, 1, ""},
		"fails without end":           {[]http.HandlerFunc{endless(500), ok}, 2, ""},
		"refuses without end":         {[]http.HandlerFunc{endless(400)}, 1, "!answers 400 Bad Request"},
	} {
		d := open(t, httptest.NewServer, test.ways...)
		err := webhookTo(d.URL+secretPath).send(t.Context(), message, event)
		why, refused := strings.CutPrefix(test.why, "!")
		var final *refusal
		switch {
		case (err == nil) != (test.why == "") || errors.As(err, &final) != refused || err != nil && !strings.Contains(err.Error(), why):
			t.Errorf("%s: %v, want %q", name, err, test.why)
		case d.asked() != test.asked:
			t.Errorf("%s: asked %d times, want %d", name, d.asked(), test.asked)
		case err != nil && (strings.Contains(err.Error(), "secret") || !strings.HasPrefix(err.Error(), strings.TrimPrefix(d.URL, "http://"))):
			t.Errorf("%s: it is told as %q", name, err)
		}
	}
	if elsewhere.asked() > 0 {
		t.Error("a redirect to another host was followed")
	}
}

// A server without a trusted certificate gets nothing, and a post to one that is gone is kept.
// Each is reported without its path.
func TestServersThatDoNotAnswer(t *testing.T) {
	hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	var calls atomic.Int32
	unknown := func(h http.Handler) *httptest.Server {
		s := httptest.NewUnstartedServer(h)
		s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				calls.Add(1)
			}
		}
		s.StartTLS()
		return s
	}
	masked, gone := open(t, unknown, answers(200)), open(t, httptest.NewServer, hang)
	gone.Close()
	for name, test := range map[string]struct {
		*desk
		why string
	}{"unknown CA": {masked, "certificate signed by unknown authority"}, "gone": {gone, "connection refused"}} {
		err := webhookTo(test.URL+secretPath).send(t.Context(), message, event)
		var refused *refusal
		if err == nil || errors.As(err, &refused) || !strings.Contains(err.Error(), test.why) || strings.Contains(err.Error(), "secret") || test.desk.asked() != 0 {
			t.Errorf("%s: %v, asked %d times", name, err, test.desk.asked())
		}
	}
	if calls.Load() != 1 {
		t.Errorf("a server that nobody vouches for was called %d times", calls.Load())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancelling := open(t, httptest.NewServer, func(w http.ResponseWriter, r *http.Request) {
		cancel()
		hang(w, r)
	})
	if err := webhookTo(cancelling.URL).send(ctx, message, event); err == nil || !strings.HasSuffix(err.Error(), errOver.Error()) || cancelling.asked() != 1 {
		t.Errorf("cancelled: %v, asked %d times", err, cancelling.asked())
	}
}

// A trip answers without a network, so that time can be the test's own.
type trip func(*http.Request) (*http.Response, error)

func (f trip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A server that hangs is given up for now, each time after the time that it is given.
func TestAServerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newWebhook(strategy.Notify{URL: "https://hooks.example" + secretPath, Timeout: 10 * time.Second}, "v9")
		asked := 0
		h.client.HTTPClient.Transport = trip(func(r *http.Request) (*http.Response, error) {
			asked++
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		began := time.Now()
		err := h.send(t.Context(), message, event)
		var refused *refusal
		if err == nil || errors.As(err, &refused) || !strings.Contains(err.Error(), "deadline exceeded") || strings.Contains(err.Error(), "secret") || asked != tries {
			t.Errorf("%v, asked %d times", err, asked)
		}
		if took, want := time.Since(began), tries*10*time.Second+15*time.Second; took != want { // with the pauses
			t.Errorf("given up after %s, want %s", took, want)
		}
	})
}

// The pauses between tries grow, are bounded in number, and are the server's where it says.
func TestPauses(t *testing.T) {
	answer := func(status int, after string) *http.Response {
		return &http.Response{StatusCode: status, Header: http.Header{"Retry-After": {after}}, Body: io.NopCloser(strings.NewReader(""))}
	}
	for name, test := range map[string]struct {
		answers []*http.Response
		took    time.Duration
		sent    bool
	}{
		"fails for good":   {[]*http.Response{answer(500, ""), answer(500, ""), answer(500, ""), answer(500, ""), answer(500, ""), answer(200, "")}, 15 * time.Second, false},
		"says how long":    {[]*http.Response{answer(429, "30"), answer(503, "45"), answer(200, "")}, 75 * time.Second, true},
		"says too long":    {[]*http.Response{answer(429, "61"), answer(200, "")}, 0, false},
		"says, then fails": {[]*http.Response{answer(429, "60"), answer(502, ""), answer(200, "")}, 62 * time.Second, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := newWebhook(strategy.Notify{URL: "https://hooks.example/x", Timeout: 10 * time.Second}, "v9")
			n := 0
			h.client.HTTPClient.Transport = trip(func(*http.Request) (*http.Response, error) { n++; return test.answers[n-1], nil })
			began := time.Now()
			err := h.send(t.Context(), message, event)
			if took := time.Since(began); took != test.took || (err == nil) != test.sent {
				t.Errorf("%s: it took %v, want %v; %v", name, took, test.took, err)
			}
		})
	}
}

// The text of a server's answer is not shown, since it may repeat the URL in any spelling: neither its body
// nor what the client quotes of it. The URL is not shown either.
func TestTextOfAnswersIsNotShown(t *testing.T) {
	const secret = "tokenwithoutdigits"
	body := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, text)
		}
	}
	for what, test := range map[string]struct {
		way  http.HandlerFunc
		want string
	}{
		"a body":            {body("no hook /services/" + secret), "answers 404 Not Found"},
		"an escaped body":   {body("%74okenwithoutdigits"), "answers 404 Not Found"},
		"no answer of HTTP": {dies(secret + "\r\n\r\n"), "it does not answer as a web server"},
		"an odd header":     {dies("HTTP/1.1 200 OK\r\n" + secret + "\r\n\r\n"), "it does not answer as a web server"},
		"a redirect":        {answers(307, "Location", "http://127.0.0.1:1/"+secret), "it redirects to another host"},
		"a broken redirect": {answers(307, "Location", "http://[/"+secret), "it does not answer as a web server"},
	} {
		d := open(t, httptest.NewServer, test.way)
		err := webhookTo(d.URL+"/services/"+secret).send(t.Context(), message, event)
		if err == nil || strings.Contains(err.Error(), "withoutdigits") || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", what, err, test.want)
		}
	}
}

// Where the end cuts off the tries, it is told why the last one has failed, and at which host.
func TestLastErrorIsReported(t *testing.T) {
	gone := open(t, httptest.NewServer, answers(200))
	gone.Close()
	h := webhookTo(gone.URL + secretPath)
	ctx, cancel := context.WithCancel(t.Context())
	h.client.Backoff = func(time.Duration, time.Duration, int, *http.Response) time.Duration {
		cancel()
		return time.Hour
	}
	if err := h.send(ctx, message, event); err == nil || !strings.HasPrefix(err.Error(), strings.TrimPrefix(gone.URL, "http://")) || !strings.Contains(err.Error(), "connection refused") {
		t.Error(err)
	}
}
