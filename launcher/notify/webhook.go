package notify

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/gpurun/gpurun/strategy"
)

const (
	tries        = 5
	shortestWait = time.Second
	// longestWait bounds the pause between two tries. If the server requests a longer one, the event stays in
	// the outbox.
	longestWait = time.Minute
	redirects   = 3
)

// A refusal is an error after which an event is not tried again.
type refusal struct{ why string }

func (r *refusal) Error() string { return r.why }

// A webhook posts events to a URL.
type webhook struct {
	url, host, secret, agent string
	client                   *retryablehttp.Client
	last                     error // of the last try of the one event that is being sent
}

func newWebhook(s strategy.Notify, version string) *webhook {
	h := &webhook{url: s.URL, host: "its URL", secret: s.Secret, agent: "gpurun/" + version}
	if u, err := url.Parse(s.URL); err == nil {
		h.host = u.Host
	}
	transport := http.DefaultTransport.(*http.Transport).Clone() // its proxies are those of the environment
	transport.DisableKeepAlives = true                           // events are rare
	transport.MaxResponseHeaderBytes = 64 << 10
	h.client = &retryablehttp.Client{
		HTTPClient: &http.Client{Transport: transport, Timeout: s.Timeout, CheckRedirect: sameHost},
		RetryMax:   tries - 1, RetryWaitMin: shortestWait, RetryWaitMax: longestWait,
		CheckRetry: h.retry, Backoff: retryablehttp.DefaultBackoff, ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
	return h
}

// sameHost follows redirects that keep the host and the posted body.
func sameHost(next *http.Request, before []*http.Request) error {
	first := before[0]
	switch {
	case next.URL.Host != first.URL.Host || next.URL.Scheme != first.URL.Scheme:
		return &refusal{"it redirects to another host; only redirects within a host are followed"}
	case next.Method != http.MethodPost:
		return &refusal{fmt.Sprintf("it redirects with status %d, which drops the posted body", next.Response.StatusCode)}
	case len(before) > redirects:
		return &refusal{"it redirects in a circle"}
	}
	return nil
}

// retry reports whether another try soon may succeed, and keeps the error of this one.
func (h *webhook) retry(ctx context.Context, answer *http.Response, err error) (bool, error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if err != nil {
		h.last = withoutURL(err)
		var refused *refusal
		var untrusted *tls.CertificateVerificationError
		if errors.As(err, &refused) || errors.As(err, &untrusted) {
			return false, err
		}
		return true, nil
	}
	h.last = fmt.Errorf("%w was %s", errStatus, status(answer))
	if !temporary(answer.StatusCode) {
		return false, nil
	}
	asked := retryablehttp.DefaultBackoff(0, 0, 0, answer) // Retry-After, or 0
	return asked >= 0 && asked <= longestWait, nil
}

// temporary reports whether the server may accept the same event later.
func temporary(status int) bool {
	soon := []int{http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests}
	return slices.Contains(soon, status) ||
		status >= 500 && status != http.StatusNotImplemented
}

// errStatus begins the error of a try that got an answer.
var errStatus = errors.New("the last answer")

// withoutURL is an error without the URL that the client puts before it.
func withoutURL(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}

func (h *webhook) send(ctx context.Context, m Notification, body []byte) error {
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
	h.last = nil
	answer, err := h.client.Do(request)
	if answer != nil {
		defer answer.Body.Close()
	}
	err = withoutURL(err)
	if err != nil && ctx.Err() != nil {
		err = cmp.Or(h.last, errOver)
	}
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		return &refusal{h.host + ": " + refused.why}
	case err != nil:
		return fmt.Errorf("%s: %s", h.host, shown(err))
	case answer.StatusCode/100 == 2:
		return nil
	case temporary(answer.StatusCode):
		return fmt.Errorf("%s answers %s", h.host, status(answer))
	}
	return &refusal{h.host + " answers " + status(answer)}
}

// shown is an error for a message. One that may quote the server's answer is not shown, since the answer may
// repeat the URL, which is a secret.
func shown(err error) string {
	var network net.Error
	var untrusted *tls.CertificateVerificationError
	switch {
	case errors.Is(err, errOver), errors.As(err, &untrusted), errors.As(err, &network), errors.Is(err, errStatus):
		return err.Error()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "it closed the connection without an answer"
	}
	return "it does not answer as a web server"
}

// signature is the HMAC-SHA-256 of a body, in hexadecimal.
func signature(body []byte, secret string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}

// status is an answer's status. Its body is not shown: it may repeat the URL, which is a secret.
func status(answer *http.Response) string {
	text := cmp.Or(http.StatusText(answer.StatusCode), "(not a standard status)")
	return fmt.Sprintf("%d %s", answer.StatusCode, text)
}
