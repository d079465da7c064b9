package output

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/terminal"
)

const (
	consoleQueue    = 8 << 20                // bytes that wait for the console; as many are being written
	consolePiece    = 64 << 10               // bytes in one write
	consolePatience = 500 * time.Millisecond // how long a console may hold a rank's output back
	consoleStall    = time.Second            // without a move, at the end: nobody reads it
	consoleClose    = 5 * time.Second        // how long Wait waits for a console that is only slow
)

// A console is the place that people look at: a writer, or two that lead to the
// same file, and the one goroutine that writes to them.
type console struct {
	dir   string
	queue *queue
	to    [2]io.Writer // stdout, stderr; nil where the console is not for it
	other *console     // where it is told that this one has failed; may be nil
	done  chan struct{}
	given atomic.Bool // given up: write nothing more

	// Guarded by queue.mu.
	parts []part // of queue.buf
	last  int    // key of the view that wrote last
	open  bool   // the last byte did not end a line

	// The goroutine's own.
	dead   [2]bool // the writer failed
	unsaid bool    // bytes were not written because the console was given up
}

// A part of a buffer goes to one of the writers.
type part struct {
	to  int
	end int
}

const (
	nobody = -1            // the key of gpurun's own words
	always = -consoleQueue // the room that they need: they are few, and go in even if the queue is full
)

func newConsole(dir string, stdout, stderr io.Writer, other *console) *console {
	c := &console{
		dir: dir, other: other, to: [2]io.Writer{stdout, stderr}, last: nobody,
		queue: newQueue(consoleQueue, consolePatience), done: make(chan struct{}),
	}
	for i, w := range c.to {
		c.dead[i] = w == nil
	}
	go c.run()
	return c
}

// put lets add append n bytes or so for one of the writers, and reports whether
// there was room.
func (c *console) put(to, n int, add func([]byte) []byte) bool {
	return c.queue.put(n, func(buf []byte) []byte {
		start := len(buf)
		buf = add(buf)
		if len(buf) == start {
			return buf
		}
		c.open = buf[len(buf)-1] != '\n'
		if k := len(c.parts) - 1; k >= 0 && c.parts[k].to == to {
			c.parts[k].end = len(buf)
		} else {
			c.parts = append(c.parts, part{to, len(buf)})
		}
		return buf
	})
}

// note writes a line of gpurun's own to stderr.
func (c *console) note(text string) {
	c.put(1, always, func(buf []byte) []byte { return c.appendNote(buf, text) })
}

// appendNote is called under queue.mu.
func (c *console) appendNote(buf []byte, text string) []byte {
	if c.open {
		buf = append(buf, '\n')
	}
	c.last = nobody
	buf = append(buf, terminal.Line(text)...)
	return append(buf, '\n')
}

func (c *console) run() {
	defer close(c.done)
	var buf []byte
	var parts, spare []part
	for ok := true; ok; {
		buf, ok = c.queue.take(buf, func() { parts, c.parts, spare = c.parts, spare[:0], parts })
		start := 0
		for _, p := range parts {
			c.write(p.to, buf[start:p.end])
			start = p.end
		}
	}
	if c.unsaid {
		c.tellUnsaid()
	}
}

// tellUnsaid tells whoever made a console move again that it had been left behind.
// Nobody is left who could be told of an error.
func (c *console) tellUnsaid() {
	for to := 1; to >= 0; to-- {
		if !c.dead[to] {
			fmt.Fprintf(c.to[to], "\ngpurun: more output is not shown, see %s\n", terminal.Line(c.dir))
			return
		}
	}
}

// write writes in pieces that end with a line where possible, so that words of
// others who use the same terminal do not fall into one.
func (c *console) write(to int, p []byte) {
	for len(p) > 0 && !c.dead[to] && !c.given.Load() {
		piece := p[:min(len(p), consolePiece)]
		if i := bytes.LastIndexByte(piece, '\n'); i >= 0 && len(piece) < len(p) {
			piece = piece[:i+1]
		}
		n, err := c.to[to].Write(piece)
		p = p[n:]
		c.queue.moved()
		if errors.Is(err, syscall.EAGAIN) {
			err = awaitWritable(c.to[to])
		}
		if err != nil {
			c.fail(to, err)
		}
	}
	c.unsaid = c.unsaid || len(p) > 0 && c.given.Load()
}

// fail gives up a writer. That stdout failed is told on stderr, where that is
// another file; that stderr failed can be told nowhere.
func (c *console) fail(to int, err error) {
	c.dead[to] = true
	if c.other != nil {
		c.other.note(fmt.Sprintf("gpurun: cannot write to stdout any more (%v); the ranks' output continues in %s", err, c.dir))
	}
}

// awaitWritable waits for a descriptor that somebody made non-blocking, such as
// another program on the same terminal.
func awaitWritable(w io.Writer) error {
	if on, ok := w.(*onScreen); ok {
		w = on.to
	}
	f, ok := w.(*os.File)
	if !ok {
		return syscall.EAGAIN
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Control(func(fd uintptr) {
		for failed = syscall.EINTR; errors.Is(failed, syscall.EINTR); {
			_, failed = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, -1)
		}
	})
	return errors.Join(err, failed)
}

// close writes what is queued. A console that does not move is left behind with
// its goroutine, which ends as soon as its write returns.
func (c *console) close() {
	c.queue.close()
	end := time.Now().Add(consoleClose)
	for moves := -1; ; {
		now := c.queue.movements()
		if now == moves || time.Now().After(end) {
			break
		}
		moves = now
		timer := time.NewTimer(consoleStall)
		select {
		case <-c.done:
			timer.Stop()
			return
		case <-timer.C:
		}
	}
	c.given.Store(true)
}
