package output

import (
	"sync"
	"time"
)

// patience bounds how long a full queue holds a reader back. The first wait may
// take all of it; it grows again by a hundredth of the time that passes, so that
// a writer that is a little too slow costs a rank at most 1 % of its time. A
// writer that did not move during a whole wait is not waited for again until it
// moves.
type patience struct {
	most    time.Duration
	left    time.Duration
	counted time.Time // when left was last brought up to date
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

// A queue passes bytes from readers to one writer, in bounded memory: what the
// readers add grows in one buffer while the writer works on another.
type queue struct {
	limit int
	wake  chan struct{} // one element: there is something to take, or the end

	mu       sync.Mutex
	buf      []byte        // guarded by mu, as all below
	room     chan struct{} // closed and replaced when buf has been taken
	patience patience
	moves    int // pieces written
	recent   int // the most bytes that were taken at once of late
	closed   bool
}

func newQueue(limit int, most time.Duration) *queue {
	return &queue{
		limit:    limit,
		wake:     make(chan struct{}, 1),
		room:     make(chan struct{}),
		patience: patience{most: most, left: most, counted: time.Now()},
	}
}

// put makes room for n bytes, or gives up, and then lets add append to the buffer
// under the lock. It reports whether add was called.
func (q *queue) put(n int, add func([]byte) []byte) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.awaitRoom(n) {
		return false
	}
	q.buf = add(q.buf)
	q.signal()
	return true
}

// awaitRoom is called and returns with mu held.
func (q *queue) awaitRoom(n int) bool {
	for !q.closed && len(q.buf) > 0 && len(q.buf)+n > q.limit {
		start := time.Now()
		wait := q.patience.available(start)
		if wait < time.Millisecond {
			return false
		}
		room, moves := q.room, q.moves
		timer := time.NewTimer(wait)
		q.mu.Unlock()
		select {
		case <-room:
		case <-timer.C:
		}
		q.mu.Lock()
		timer.Stop()
		took := time.Since(start)
		q.patience.left -= took
		if took >= wait && q.moves == moves {
			q.patience.stalled = true
		}
	}
	return !q.closed
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

// recycle empties a buffer for reuse, unless it has become much larger than what
// was needed of late.
func recycle(buf []byte, recent int) []byte {
	if cap(buf) > 256<<10 && recent < cap(buf)/8 {
		return nil
	}
	return buf[:0]
}

// moved tells that the writer got something written.
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

// close refuses further bytes. The writer still takes what is there.
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
