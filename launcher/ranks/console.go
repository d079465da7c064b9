package ranks

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gpurun/gpurun/launcher/mask"
	"golang.org/x/sys/unix"
)

const (
	consoleQueue    = 2 << 20                // bytes that wait for the console; as many are being written
	consolePiece    = 64 << 10               // bytes in one write
	consolePatience = 500 * time.Millisecond // how long a console may hold a rank's output back
	consoleStall    = time.Second            // without a written piece, at the end: it has no reader
	consoleClose    = 5 * time.Second        // how long Wait waits for a console that is only slow
)

// A console is a writer that people see, or two to the same file, with the only goroutine that writes to
// them.
type console struct {
	dir   string
	queue *queue
	to    [2]io.Writer // stdout, stderr; nil where the console is not for it
	other *console     // which reports that this one has failed; may be nil
	given atomic.Bool  // given up: write nothing more

	// Guarded by queue.mu.
	parts []consolePart // of queue.buf
	last  int           // key of the view that wrote last
	open  bool          // the last byte did not end a line

	// The goroutine's own.
	dead   [2]bool // the writer failed
	unsaid bool    // bytes were not written because the console was given up
}

// A consolePart of a buffer goes to one of the writers.
type consolePart struct {
	to  int
	end int
}

const (
	ownKey = -1            // the key of gpurun's own lines
	always = -consoleQueue // the room that they need: they are few, and always fit in the queue
)

func newConsole(dir string, stdout, stderr io.Writer, other *console) *console {
	c := &console{
		dir: dir, other: other, to: [2]io.Writer{stdout, stderr}, last: ownKey,
		queue: newQueue(consoleQueue, consolePatience),
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
			c.parts = append(c.parts, consolePart{to, len(buf)})
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
	c.last = ownKey
	buf = append(buf, mask.TerminalLine(text)...)
	return append(buf, '\n')
}

func (c *console) run() {
	defer close(c.queue.done)
	var parts, spare []consolePart
	c.queue.each(func() { parts, c.parts, spare = c.parts, spare[:0], parts }, func(p []byte) {
		start := 0
		for _, part := range parts {
			c.write(part.to, p[start:part.end])
			start = part.end
		}
	})
	for to := 1; to >= 0 && c.unsaid; to-- { // to the reader that came back too late
		if !c.dead[to] {
			fmt.Fprintf(c.to[to], "\ngpurun: more output is not shown, see %s\n", mask.TerminalLine(c.dir))
			return
		}
	}
}

// write writes to one of the writers, until that fails. A stdout that failed is reported on
// stderr, where that is another file.
func (c *console) write(to int, p []byte) {
	rest, err := c.queue.writePieces(c.to[to], p, func() bool { return c.dead[to] || c.given.Load() })
	c.unsaid = c.unsaid || len(rest) > 0 && c.given.Load()
	if err == nil {
		return
	}
	c.dead[to] = true
	if c.other != nil {
		c.other.note(fmt.Sprintf("gpurun: cannot write to stdout any more (%v); the ranks' output continues in %s", err, c.dir))
	}
}

// awaitWritable waits for a descriptor that another program on the same terminal made
// non-blocking.
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

// close writes what is queued. A blocked console is abandoned with its goroutine, which ends as soon as its
// write returns.
func (c *console) close() {
	if !c.queue.end(consoleStall, time.Now().Add(consoleClose)) {
		c.given.Store(true)
	}
}
