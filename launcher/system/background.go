// A Worker does work that a run must not wait for, such as writing to a disk that may hang.

package system

import (
	"context"
	"sync"
	"time"
)

// A Worker calls a function in one goroutine.
type Worker struct {
	wake  chan struct{} // one element: woken since the last call
	over  chan struct{}
	owner sync.WaitGroup
}

// NewWorker returns a worker without a goroutine. It can be woken before Start.
func NewWorker() *Worker {
	return &Worker{wake: make(chan struct{}, 1), over: make(chan struct{})}
}

// Start calls work after each Wake, and after each pause unless that is 0, until Close.
func (w *Worker) Start(pause time.Duration, work func()) {
	w.owner.Go(func() {
		var tick <-chan time.Time
		if pause > 0 {
			ticker := time.NewTicker(pause)
			defer ticker.Stop()
			tick = ticker.C
		}
		for {
			select {
			case <-w.wake:
			case <-tick:
			case <-w.over:
				select {
				case <-w.wake:
					work()
				default:
				}
				return
			}
			work()
		}
	})
}

// Wake makes the worker call its function soon, and does not wait for that.
func (w *Worker) Wake() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Close ends the goroutine, after one more call if the worker was woken since the last.
func (w *Worker) Close() { close(w.over) }

// Wait waits for the end of the goroutine, and reports whether it came before the time was up or ctx was
// done. A goroutine whose call hangs is left behind.
func (w *Worker) Wait(ctx context.Context, patience time.Duration) bool {
	ended := make(chan struct{})
	go func() {
		w.owner.Wait()
		close(ended)
	}()
	up := time.NewTimer(patience)
	defer up.Stop()
	select {
	case <-ended:
		return true
	case <-up.C:
	case <-ctx.Done():
	}
	return false
}
