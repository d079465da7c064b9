package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Bounds of the resources that clients can use.
const (
	mostConnections = 16
	largestHeader   = 16 << 10 // bytes
	headerTimeout   = 5 * time.Second
	answerTimeout   = 10 * time.Second
	idleTimeout     = 3 * time.Minute // longer than scrapes are apart
)

// A server answers Prometheus until close. A nil one does nothing.
type server struct {
	http    http.Server
	serving sync.WaitGroup
}

// listen serves metrics on an address. If it cannot, it warns and returns nil: the job trains
// without.
func listen(address string, text func() []byte, note func(string)) *server {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		note(fmt.Sprintf("warning: no metrics are served: %v", err))
		return nil
	}
	if _, port, _ := net.SplitHostPort(address); port == "0" {
		note(fmt.Sprintf("the metrics are served on http://%s/metrics", listener.Addr()))
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", textType)
		_, _ = w.Write(text()) // a client that is gone needs no answer
	})
	clients := &connections{most: mostConnections}
	s := &server{http: http.Server{
		Handler: clients.answering(mux), ConnContext: clients.context, ConnState: clients.state, ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, WriteTimeout: answerTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: largestHeader, ErrorLog: log.New(io.Discard, "", 0),
	}}
	s.serving.Go(func() {
		err := s.http.Serve(listener)
		if !errors.Is(err, http.ErrServerClosed) {
			note(fmt.Sprintf("warning: the metrics are not served any more: %v", err))
		}
	})
	return s
}

// close waits a short time for answers that are being sent.
func (s *server) close() {
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closePatience/4)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close() // a client does not read its answer
	}
	s.serving.Wait()
}

// connections bounds the number of clients. A new one replaces the oldest that is not being
// answered, so that idle clients do not block others.
type connections struct {
	mu   sync.Mutex
	most int
	open []*connection // the oldest first
}

type connection struct {
	net.Conn
	answered bool // now
}

type connectionKey struct{}

// context implements http.Server.ConnContext.
func (c *connections) context(ctx context.Context, conn net.Conn) context.Context {
	added := &connection{Conn: conn}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = append(c.open, added)
	if len(c.open) > c.most {
		i := slices.IndexFunc(c.open, func(o *connection) bool { return !o.answered }) // the new one, if no other
		_ = c.open[i].Close()
		c.open = slices.Delete(c.open, i, i+1)
	}
	return context.WithValue(ctx, connectionKey{}, added)
}

// state implements http.Server.ConnState.
func (c *connections) state(conn net.Conn, s http.ConnState) {
	if s != http.StateClosed && s != http.StateHijacked {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = slices.DeleteFunc(c.open, func(o *connection) bool { return o.Conn == conn })
}

// answering marks a connection while its request is answered.
func (c *connections) answering(h http.Handler) http.Handler {
	mark := func(r *http.Request, answered bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		r.Context().Value(connectionKey{}).(*connection).answered = answered
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mark(r, true)
		defer mark(r, false)
		h.ServeHTTP(w, r)
	})
}
