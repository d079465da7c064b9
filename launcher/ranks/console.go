package ranks

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/mask"
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
		c.other.note(fmt.Sprintf("gpurun: cannot write to stdout any more (%v); the ranks' output continues in %s", err,
			c.dir))
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

// patience bounds how long a full queue delays a reader. The first wait may use all of it; it
// grows again by a hundredth of the time that passes, so that a slow writer costs a rank at
// most 1 % of its time. After a whole wait without a written piece, the reader does not wait
// again until one is written.
type patience struct {
	most    time.Duration
	left    time.Duration
	counted time.Time // when left was last updated
	stalled bool
}

// available returns how long a reader may wait now.
func (p *patience) available(now time.Time) time.Duration {
	if p.stalled {
		return 0
	}
	p.left = min(p.most, p.left+now.Sub(p.counted)/100)
	p.counted = now
	return p.left
}

// A queue passes bytes from readers to one writer, in bounded memory: readers append to one
// buffer while the writer writes another.
type queue struct {
	limit int
	wake  chan struct{} // one element: there is something to take, or the end
	done  chan struct{} // closed when the writer has ended

	mu       sync.Mutex
	buf      []byte        // guarded by mu, as all below
	room     chan struct{} // closed and replaced when buf has been taken
	waiting  int           // bytes that are not written yet
	written  chan struct{} // closed and replaced when there are none
	patience patience
	moves    int // pieces written
	recent   int // the most bytes that were recently taken at once
	closed   bool
}

func newQueue(limit int, most time.Duration) *queue {
	return &queue{
		limit:    limit,
		wake:     make(chan struct{}, 1),
		done:     make(chan struct{}),
		room:     make(chan struct{}),
		written:  make(chan struct{}),
		patience: patience{most: most, left: most, counted: time.Now()},
	}
}

// put waits for room for n bytes, within its patience, and then lets add append to the
// buffer under the lock. It reports whether add was called.
func (q *queue) put(n int, add func([]byte) []byte) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.awaitRoom(n) {
		return false
	}
	before := len(q.buf)
	q.buf = add(q.buf)
	q.waiting += len(q.buf) - before
	q.signal()
	return true
}

// awaitRoom is called and returns with mu held.
func (q *queue) awaitRoom(n int) bool {
	for !q.closed && len(q.buf) > 0 && len(q.buf)+n > q.limit {
		if !q.wait(q.room) {
			return false
		}
	}
	return !q.closed
}

// awaitWritten waits until everything is written, within the queue's patience.
func (q *queue) awaitWritten() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting > 0 {
		q.wait(q.written)
	}
}

// wait waits for a channel within the queue's patience; false where none is left. It is called
// and returns with mu held.
func (q *queue) wait(signal <-chan struct{}) bool {
	start := time.Now()
	most := q.patience.available(start)
	if most < time.Millisecond {
		return false
	}
	moves := q.moves
	timer := time.NewTimer(most)
	defer timer.Stop()
	q.mu.Unlock()
	select {
	case <-signal:
	case <-timer.C:
	}
	q.mu.Lock()
	took := time.Since(start)
	q.patience.left -= took
	if took >= most && q.moves == moves {
		q.patience.stalled = true
	}
	return true
}

// each gives the writer all bytes until the queue is closed and empty; swap runs under the
// lock when they are taken.
func (q *queue) each(swap func(), write func([]byte)) {
	var buf []byte
	for {
		var ok bool
		if buf, ok = q.take(buf, swap); !ok {
			return
		}
		write(buf)
		q.mu.Lock()
		if q.waiting -= len(buf); q.waiting == 0 {
			close(q.written)
			q.written = make(chan struct{})
		}
		q.mu.Unlock()
	}
}

// writePieces writes p in pieces that end with a line where possible, so that the lines of other programs on
// the same terminal stay whole. It returns the rest after an error, or once stop is true.
func (q *queue) writePieces(to io.Writer, p []byte, stop func() bool) (rest []byte, err error) {
	for len(p) > 0 && err == nil && !stop() {
		piece := p[:min(len(p), consolePiece)]
		if i := bytes.LastIndexByte(piece, '\n'); i >= 0 && len(piece) < len(p) {
			piece = piece[:i+1]
		}
		var n int
		n, err = to.Write(piece)
		p = p[n:]
		q.moved()
		if errors.Is(err, syscall.EAGAIN) {
			err = awaitWritable(to)
		}
	}
	return p, err
}

// take waits for bytes and exchanges them for an empty buffer; swap runs under
// the lock. It returns false at the end of the queue.
func (q *queue) take(empty []byte, swap func()) ([]byte, bool) {
	for range q.wake {
		q.mu.Lock()
		full := q.buf
		closed := q.closed
		q.recent = max(len(full), q.recent-q.recent/16)
		q.buf = recycle(empty, q.recent)
		swap()
		close(q.room)
		q.room = make(chan struct{})
		q.mu.Unlock()
		if len(full) > 0 {
			if closed {
				q.signal()
			}
			return full, true
		}
		if closed {
			return nil, false
		}
		empty = full
	}
	return nil, false
}

// recycle empties a buffer for reuse, unless it is much larger than recently needed.
func recycle(buf []byte, recent int) []byte {
	if cap(buf) > 256<<10 && recent < cap(buf)/8 {
		return nil
	}
	return buf[:0]
}

// moved records that the writer wrote something.
func (q *queue) moved() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.moves++
	q.patience.stalled = false
}

// movements returns the number of pieces written so far.
func (q *queue) movements() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.moves
}

// end closes the queue and waits until its writer has ended. It stops waiting, with false,
// after a stall without a written piece, or at a time; zero: none.
func (q *queue) end(stall time.Duration, until time.Time) bool {
	q.close()
	for moves := -1; moves != q.movements() && (until.IsZero() || time.Now().Before(until)); {
		moves = q.movements()
		timer := time.NewTimer(stall)
		select {
		case <-q.done:
		case <-timer.C:
		}
		timer.Stop()
	}
	select {
	case <-q.done:
		return true
	default:
		return false
	}
}

// close refuses further bytes. The writer still takes the queued bytes.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	close(q.room)
	q.room = make(chan struct{})
	q.signal()
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}
