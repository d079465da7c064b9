package metrics

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
)

// connections bounds how many clients a server has. A new one takes the place of the oldest
// that is not being answered: clients that connect and say nothing keep nobody out.
type connections struct {
	mu   sync.Mutex
	most int
	open []*connection // the oldest first
}

type connection struct {
	net.Conn
	answered bool // at this moment
}

type connectionKey struct{}

// context is http.Server's ConnContext.
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

// state is http.Server's ConnState.
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
