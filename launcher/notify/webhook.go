package notify

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/gpurun/gpurun/launcher/terminal"
)

const (
	tries        = 5
	shortestWait = time.Second
	// longestWait bounds the pause between two tries, also where the server asks for a longer
	// one: the event stays in the outbox then.
	longestWait = time.Minute
	// mostRead is how much of an answer is read, in bytes, and mostSaid how much of it people
	// are shown.
	mostRead  = 4 << 10
	mostSaid  = 120
	redirects = 3
)

// A refusal is why an event is never sent.
type refusal struct{ why string }

func (r *refusal) Error() string { return r.why }

// A webhook posts events to a URL.
type webhook struct {
	url, host string
	style     string
	secret    string
	agent     string
	client    *retryablehttp.Client
}

func newWebhook(s Settings, version string) *webhook {
	h := &webhook{url: s.URL, host: "its URL", style: s.Style, secret: s.Secret, agent: "gpurun/" + version}
	if u, err := url.Parse(s.URL); err == nil {
		h.host = u.Host
	}
	transport := http.DefaultTransport.(*http.Transport).Clone() // its proxies are those of the environment
	transport.DisableKeepAlives = true                           // events are rare
	transport.MaxResponseHeaderBytes = 64 << 10
	h.client = &retryablehttp.Client{
		HTTPClient: &http.Client{Transport: transport, Timeout: s.Timeout, CheckRedirect: sameHost},
		RetryMax:   tries - 1, RetryWaitMin: shortestWait, RetryWaitMax: longestWait,
		CheckRetry: again, Backoff: retryablehttp.DefaultBackoff, ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
	return h
}

// sameHost follows redirects that keep to the host and to what is posted.
func sameHost(next *http.Request, before []*http.Request) error {
	first := before[0]
	switch {
	case next.URL.Host != first.URL.Host || next.URL.Scheme != first.URL.Scheme:
		return &refusal{fmt.Sprintf("it redirects to %s://%s; only redirects within a host are followed", next.URL.Scheme, next.URL.Host)}
	case next.Method != http.MethodPost:
		return &refusal{fmt.Sprintf("it redirects with status %d, which drops what is posted", next.Response.StatusCode)}
	case len(before) > redirects:
		return &refusal{"it redirects in a circle"}
	}
	return nil
}

// again reports whether another try soon may succeed.
func again(ctx context.Context, answer *http.Response, err error) (bool, error) {
	var refused *refusal
	var untrusted *tls.CertificateVerificationError
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case errors.As(err, &refused), errors.As(err, &untrusted):
		return false, err
	case err != nil:
		return true, nil
	case !passing(answer.StatusCode):
		return false, nil
	}
	asked := retryablehttp.DefaultBackoff(0, 0, 0, answer) // Retry-After, or 0
	return asked >= 0 && asked <= longestWait, nil
}

// passing reports whether a status is one of a server that may take the same event later.
func passing(status int) bool {
	return slices.Contains([]int{http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests}, status) ||
		status >= 500 && status != http.StatusNotImplemented
}

func (h *webhook) send(ctx context.Context, m Message, event []byte) error {
	body, err := styled(h.style, m, event)
	if err != nil {
		return &refusal{err.Error()}
	}
	request, err := retryablehttp.NewRequestWithContext(ctx, http.MethodPost, h.url, body)
	if err != nil {
		return &refusal{"its URL cannot be used"}
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", h.agent)
	request.Header.Set("X-Gpurun-Delivery", m.ID)
	if h.secret != "" {
		request.Header.Set("X-Gpurun-Signature", "sha256="+signature(body, h.secret))
	}
	answer, err := h.client.Do(request)
	if answer != nil {
		defer answer.Body.Close()
	}
	var wrapped *url.Error // which has the whole URL
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		return &refusal{h.host + ": " + refused.why}
	case err != nil:
		return fmt.Errorf("%s: %w", h.host, err)
	case answer.StatusCode/100 == 2:
		return nil
	case passing(answer.StatusCode):
		return fmt.Errorf("%s answers %s", h.host, said(answer))
	}
	return &refusal{h.host + " answers " + said(answer)}
}

// signature is the HMAC-SHA-256 of a body, in hexadecimal.
func signature(body []byte, secret string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}

// said is a status, and what the server says to it.
func said(answer *http.Response) string {
	text, _ := io.ReadAll(io.LimitReader(answer.Body, mostRead))
	line, _, _ := strings.Cut(string(bytes.TrimSpace(text)), "\n")
	words := fmt.Sprintf("%d %s", answer.StatusCode, cmp.Or(http.StatusText(answer.StatusCode), "(a status of its own)"))
	if line != "" && !strings.HasPrefix(line, "<") { // a page for browsers says nothing
		words += ": " + cut(terminal.Line(line), mostSaid)
	}
	return words
}
