package test

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// A cable is a follower's connection to the head. It can be slow, blocked for a while, or broken.
type cable struct {
	listener net.Listener
	head     string
	owner    sync.WaitGroup

	mu     sync.Mutex
	change *sync.Cond
	conns  map[net.Conn]bool
	cut    bool
	delay  time.Duration
	over   bool
}

// newCable opens a cable to the head's address, with its own address.
func newCable(t *testing.T, head string) *cable {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &cable{listener: listener, head: head, conns: map[net.Conn]bool{}}
	w.change = sync.NewCond(&w.mu)
	w.owner.Go(w.accept)
	return w
}

func (w *cable) addr() string { return w.listener.Addr().String() }

func (w *cable) accept() {
	for {
		near, err := w.listener.Accept()
		if err != nil {
			return
		}
		w.owner.Go(func() { w.carry(near) })
	}
}

// carry joins a connection with one to the head. If nothing listens there, it is reset.
func (w *cable) carry(near net.Conn) {
	defer w.forget(near)
	if !w.hold(near) || !w.open() {
		return
	}
	far, err := net.Dial("tcp", w.head)
	if err != nil {
		_ = near.(*net.TCPConn).SetLinger(0)
		return
	}
	defer w.forget(far)
	if !w.hold(far) {
		return
	}
	var ways sync.WaitGroup
	ways.Go(func() { w.pass(near, far) })
	ways.Go(func() { w.pass(far, near) })
	ways.Wait()
}

// pass carries one direction to its end, each part with a delay.
func (w *cable) pass(from, to net.Conn) {
	type part struct {
		text []byte
		due  time.Time
	}
	parts := make(chan part, 1000)
	w.owner.Go(func() {
		defer close(parts)
		for {
			text := make([]byte, 32<<10)
			n, err := from.Read(text)
			w.mu.Lock()
			due := time.Now().Add(w.delay)
			w.mu.Unlock()
			if n > 0 {
				parts <- part{text[:n], due}
			}
			if err != nil {
				return
			}
		}
	})
	for p := range parts {
		time.Sleep(time.Until(p.due))
		if w.open() {
			_, _ = to.Write(p.text) // no error: the other direction shows that the reader is gone
		}
	}
	if w.open() {
		_ = to.(*net.TCPConn).CloseWrite()
	}
}

// open waits while the cable is cut, and reports whether it still exists.
func (w *cable) open() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.cut && !w.over {
		w.change.Wait()
	}
	return !w.over
}

func (w *cable) hold(c net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns[c] = true
	return !w.over
}

func (w *cable) forget(c net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns, c)
	_ = c.Close()
}

// sever blocks the cable, without an end that either side would see.
func (w *cable) sever(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
	w.change.Broadcast()
}

// slow delays everything from now on.
func (w *cable) slow(delay time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.delay = delay
}

// reset breaks existing connections. New connections work.
func (w *cable) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
}

// close ends the cable, and waits for its goroutines.
func (w *cable) close() {
	_ = w.listener.Close()
	w.mu.Lock()
	w.over = true
	w.change.Broadcast()
	w.mu.Unlock()
	w.reset()
	w.owner.Wait()
}

// A cable carries all data, late if it is slow, and after a cut the data sent meanwhile.
func TestCable(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	w := newCable(t, echo.Addr().String())
	defer w.close()
	c, err := net.Dial("tcp", w.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	say := func(text string) string {
		_, _ = io.WriteString(c, text)
		got := make([]byte, len(text))
		_ = c.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		n, _ := io.ReadFull(c, got)
		return string(got[:n])
	}
	if got := say("one"); got != "one" {
		t.Errorf("%q", got)
	}
	w.sever(true)
	if got := say("two"); got != "" {
		t.Errorf("a cable that is cut carries %q", got)
	}
	w.sever(false)
	if got := say("!"); got != "t" {
		t.Errorf("after the cut comes %q", got)
	}
	w.reset()
	if _, err := io.ReadAll(c); err == nil {
		t.Error("the connection has not ended")
	}
}
