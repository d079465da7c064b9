package notify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"
)

// Bounds of the resources that clients can use.
const (
	largestHeader = 16 << 10 // bytes
	headerTimeout = 5 * time.Second
	answerTimeout = 10 * time.Second
	idleTimeout   = 3 * time.Minute // longer than scrapes are apart
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
	s := &server{http: http.Server{
		Handler: mux, MaxHeaderBytes: largestHeader, ErrorLog: log.New(io.Discard, "", 0),
		ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, WriteTimeout: answerTimeout,
		IdleTimeout: idleTimeout,
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
	ctx, cancel := context.WithTimeout(context.Background(), closeBound/4)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close() // a client does not read its answer
	}
	s.serving.Wait()
}
