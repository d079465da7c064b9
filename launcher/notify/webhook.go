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
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/launcher/terminal"
	"github.com/gpurun/gpurun/model"
)

const (
	tries        = 5
	shortestWait = time.Second
	// longestWait bounds the pause between two tries. If the server requests a longer one, the event stays in
	// the outbox.
	longestWait = time.Minute
	mostRead    = 4 << 10 // bytes of an answer
	mostShown   = 120     // characters of an answer in a message
	redirects   = 3
)

// A refusal is an error after which an event is not tried again.
type refusal struct{ why string }

func (r *refusal) Error() string { return r.why }

// A webhook posts events to a URL.
type webhook struct {
	url, host string
	style     string
	secret    string
	agent     string
	secrets   []string // parts of the URL that no message may show
	client    *retryablehttp.Client
	last      error // of the last try of the one event that is being sent
}

func newWebhook(s model.Notify, version string) *webhook {
	h := &webhook{url: s.URL, host: "its URL", style: s.Style, secret: s.Secret, agent: "gpurun/" + version}
	if u, err := url.Parse(s.URL); err == nil {
		h.host, h.secrets = u.Host, hiddenOf(u)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone() // its proxies are those of the environment
	transport.DisableKeepAlives = true                           // events are rare
	transport.MaxResponseHeaderBytes = 64 << 10
	h.client = &retryablehttp.Client{
		HTTPClient: &http.Client{Transport: transport, Timeout: s.Timeout, CheckRedirect: sameHost},
		RetryMax:   tries - 1, RetryWaitMin: shortestWait, RetryWaitMax: longestWait,
		CheckRetry: h.again, Backoff: retryablehttp.DefaultBackoff, ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
	return h
}

// sameHost follows redirects that keep the host and the posted body.
func sameHost(next *http.Request, before []*http.Request) error {
	first := before[0]
	switch {
	case next.URL.Host != first.URL.Host || next.URL.Scheme != first.URL.Scheme:
		return &refusal{fmt.Sprintf("it redirects to %s://%s; only redirects within a host are followed", next.URL.Scheme, next.URL.Host)}
	case next.Method != http.MethodPost:
		return &refusal{fmt.Sprintf("it redirects with status %d, which drops the posted body", next.Response.StatusCode)}
	case len(before) > redirects:
		return &refusal{"it redirects in a circle"}
	}
	return nil
}

// again reports whether another try soon may succeed, and keeps the error of this one.
func (h *webhook) again(ctx context.Context, answer *http.Response, err error) (bool, error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if err != nil {
		h.last = bare(err)
		var refused *refusal
		var untrusted *tls.CertificateVerificationError
		if errors.As(err, &refused) || errors.As(err, &untrusted) {
			return false, err
		}
		return true, nil
	}
	h.last = fmt.Errorf("the last answer was %d %s", answer.StatusCode, http.StatusText(answer.StatusCode))
	if !temporary(answer.StatusCode) {
		return false, nil
	}
	asked := retryablehttp.DefaultBackoff(0, 0, 0, answer) // Retry-After, or 0
	return asked >= 0 && asked <= longestWait, nil
}

// temporary reports whether the server may accept the same event later.
func temporary(status int) bool {
	return slices.Contains([]int{http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests}, status) ||
		status >= 500 && status != http.StatusNotImplemented
}

// bare is an error without the URL that the client puts before it.
func bare(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}

func (h *webhook) send(ctx context.Context, m Notification, event []byte) error {
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
	h.last = nil
	answer, err := h.client.Do(request)
	if answer != nil {
		defer answer.Body.Close()
	}
	err = bare(err)
	if err != nil && ctx.Err() != nil {
		err = cmp.Or(h.last, errOver)
	}
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		return &refusal{h.host + ": " + h.redacted(refused.why)}
	case err != nil:
		return fmt.Errorf("%s: %s", h.host, h.words(err))
	case answer.StatusCode/100 == 2:
		return nil
	case temporary(answer.StatusCode):
		return fmt.Errorf("%s answers %s", h.host, h.status(answer))
	}
	return &refusal{h.host + " answers " + h.status(answer)}
}

// words are an error for a message: one that may quote the server is redacted, one of the
// network is not.
func (h *webhook) words(err error) string {
	var network *net.OpError
	if errors.As(err, &network) {
		return err.Error()
	}
	return h.redacted(terminal.Line(err.Error()))
}

// signature is the HMAC-SHA-256 of a body, in hexadecimal.
func signature(body []byte, secret string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}

// status is an answer's status with the first line of its body.
func (h *webhook) status(answer *http.Response) string {
	text, _ := io.ReadAll(io.LimitReader(answer.Body, mostRead))
	line, _, _ := strings.Cut(string(bytes.TrimSpace(text)), "\n")
	words := fmt.Sprintf("%d %s", answer.StatusCode, cmp.Or(http.StatusText(answer.StatusCode), "(not a standard status)"))
	if line != "" && !strings.HasPrefix(line, "<") { // not a page for browsers
		words += ": " + terminal.Cut(terminal.Line(h.redacted(line)), mostShown)
	}
	return words
}

// secretLength is how many bytes of a URL's path are a secret.
const secretLength = 6

// hiddenOf are the parts of a URL that no message may show: each sequence of so many bytes
// before and after its host, and its shorter words.
func hiddenOf(u *url.URL) (parts []string) {
	whole := strings.ToLower(u.Path + " " + u.RawQuery + " " + u.User.String())
	if query, err := url.QueryUnescape(u.RawQuery); err == nil {
		whole += " " + strings.ToLower(query)
	}
	for _, word := range strings.FieldsFunc(whole, func(r rune) bool { return strings.ContainsRune(" /?&=:", r) }) {
		switch {
		case len(word) < 3:
		case len(word) <= secretLength:
			parts = append(parts, word)
		default:
			for at := range len(word) - secretLength + 1 {
				parts = append(parts, word[at:at+secretLength])
			}
		}
	}
	if path := strings.Trim(whole, " "); path != "/" && path != "" {
		parts = append(parts, path)
	}
	return parts
}

// redacted is the text of a server or an error, unless it has a part of the URL but its host,
// however that is encoded.
func (h *webhook) redacted(words string) string {
	spelt := strings.ToLower(strings.ReplaceAll(words, `\`, ""))
	for {
		if slices.ContainsFunc(h.secrets, func(part string) bool { return strings.Contains(spelt, part) }) {
			return "(it repeats the URL, and is not shown)"
		}
		next := strings.ToLower(percents().ReplaceAllStringFunc(spelt, func(byte string) string {
			char, _ := url.PathUnescape(byte)
			return char
		}))
		if next == spelt {
			return words
		}
		spelt = next
	}
}

// percents match the bytes that a URL may encode.
var percents = lazy.Regexp(`%[0-9a-fA-F]{2}`)
