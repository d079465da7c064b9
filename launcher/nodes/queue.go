package nodes

import (
	"sync"

	"github.com/gpurun/gpurun/strategy"
)

// A queue holds facts until somebody takes them. An attempt has few of them: what its ranks
// print is none.
type queue struct {
	mu     sync.Mutex
	facts  []strategy.Fact
	closed bool
	news   chan struct{} // has one where there is something new
}

func newQueue() *queue { return &queue{news: make(chan struct{}, 1)} }

func (q *queue) add(f strategy.Fact) {
	q.mu.Lock()
	q.facts = append(q.facts, f)
	q.mu.Unlock()
	q.tell()
}

// close says that nothing comes any more.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.tell()
}

func (q *queue) tell() {
	select {
	case q.news <- struct{}{}:
	default:
	}
}

// take gives what there is, and whether that was the last.
func (q *queue) take() (facts []strategy.Fact, last bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	facts, q.facts = q.facts, nil
	return facts, q.closed
}
