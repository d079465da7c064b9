package output

import (
	"errors"
	"io"
	"syscall"
	"time"
)

const (
	wordsQueue    = 8 << 20         // bytes that wait for a reader; what finds them waiting is lost
	wordsPatience = time.Second     // how long a reader that has stopped holds gpurun up
	wordsClose    = 2 * time.Second // without a move, at the end: nobody reads
)

// Words is where gpurun itself speaks: its decisions, its notices, its summary. A
// write returns when it is done, as any other, so that the order of what is written
// to one terminal stays as it was said; but a terminal that is stopped, or a pipe
// that nobody reads, holds gpurun up for a second at most. Then the words wait, and
// the run goes on: ranks that hang are stopped, and the next attempt starts.
//
// Any goroutine may write.
type Words struct {
	to    io.Writer
	queue *queue
	done  chan struct{} // closed when the goroutine has ended

	// Guarded by queue.mu.
	waiting int           // bytes that are not written yet
	written chan struct{} // closed and replaced when there are none
}

// NewWords writes to w until Close.
func NewWords(w io.Writer) *Words {
	words := &Words{to: w, queue: newQueue(wordsQueue, wordsPatience), done: make(chan struct{}), written: make(chan struct{})}
	go words.run()
	return words
}

// Write writes p, or leaves it to be written. It fails never: what is said to
// nobody is in the journal.
func (w *Words) Write(p []byte) (int, error) {
	if len(p) > 0 && w.queue.put(len(p), func(buf []byte) []byte {
		w.waiting += len(p)
		return append(buf, p...)
	}) {
		w.await()
	}
	return len(p), nil
}

// await waits until everything is written, as long as the reader is worth it.
func (w *Words) await() {
	q := w.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	start := time.Now()
	wait := q.patience.available(start)
	if w.waiting == 0 || wait <= 0 {
		return
	}
	written, moves := w.written, q.moves
	timer := time.NewTimer(wait)
	defer timer.Stop()
	q.mu.Unlock()
	select {
	case <-written:
	case <-timer.C:
	}
	q.mu.Lock()
	took := time.Since(start)
	q.patience.left -= took
	if took >= wait && q.moves == moves {
		q.patience.stalled = true
	}
}

func (w *Words) run() {
	defer close(w.done)
	var buf []byte
	for ok, dead := true, false; ok; {
		if buf, ok = w.queue.take(buf, func() {}); !ok {
			break
		}
		for rest := buf; len(rest) > 0 && !dead; {
			n, err := w.to.Write(rest[:min(len(rest), consolePiece)])
			rest = rest[n:]
			w.queue.moved()
			if errors.Is(err, syscall.EAGAIN) {
				err = awaitWritable(w.to)
			}
			dead = err != nil // closed, or a disk that is full: nobody is left to be told
		}
		w.wrote(len(buf))
	}
}

// wrote tells those who wait that n bytes are done with.
func (w *Words) wrote(n int) {
	w.queue.mu.Lock()
	defer w.queue.mu.Unlock()
	if w.waiting -= n; w.waiting == 0 {
		close(w.written)
		w.written = make(chan struct{})
	}
}

// Close waits for what is still to be written, as long as somebody reads. It leaves
// a reader that has stopped behind, with the goroutine that waits for it.
func (w *Words) Close() {
	w.queue.close()
	for moves := -1; moves != w.queue.movements(); {
		moves = w.queue.movements()
		timer := time.NewTimer(wordsClose)
		select {
		case <-w.done:
		case <-timer.C:
		}
		timer.Stop()
		select {
		case <-w.done:
			return
		default:
		}
	}
}
