package ranks

import (
	"io"
	"time"
)

const (
	messagesQueue    = 8 << 20         // bytes that wait for a reader; more are lost
	messagesPatience = time.Second     // how long a reader that has stopped holds gpurun up
	messagesClose    = 2 * time.Second // without a written piece, at the end
)

// Messages is the writer for gpurun's own messages: decisions, notices, summary. Write returns
// when its bytes are written, so that all that is written to one terminal keeps its order; but
// a terminal that is stopped, or a pipe without a reader, holds gpurun up for a second at most.
// Then the messages wait, and the run continues.
//
// Any goroutine may write.
type Messages struct{ queue *queue }

// NewMessages writes to w until Close.
func NewMessages(w io.Writer) *Messages {
	q := newQueue(messagesQueue, messagesPatience)
	go func() {
		defer close(q.done)
		dead := false // closed, or a disk that is full
		q.each(func() {}, func(p []byte) {
			_, err := q.writePieces(w, p, func() bool { return dead })
			dead = dead || err != nil
		})
	}()
	return &Messages{q}
}

// Write writes p, or leaves it to be written. It never fails: the journal has everything, too.
func (w *Messages) Write(p []byte) (int, error) {
	if len(p) > 0 && w.queue.put(len(p), func(buf []byte) []byte { return append(buf, p...) }) {
		w.queue.awaitWritten()
	}
	return len(p), nil
}

// Close waits until everything is written. A reader that has stopped is left behind, with the
// goroutine that waits for it.
func (w *Messages) Close() { w.queue.end(messagesClose, time.Time{}) }
