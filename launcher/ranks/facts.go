package ranks

import (
	"sync"

	"github.com/gpurun/gpurun/strategy"
)

// facts passes facts to OnFact from one goroutine. The budget of each rank bounds its queue, so
// that a reader never waits.
type facts struct {
	wake chan struct{} // one element: there is something to pass on, or the end
	done chan struct{} // closed when the goroutine has ended

	mu     sync.Mutex
	queue  []strategy.Fact // guarded by mu
	closed bool            // guarded by mu
}

func newFacts(onFact func(strategy.Fact)) *facts {
	f := &facts{wake: make(chan struct{}, 1), done: make(chan struct{})}
	go f.run(onFact)
	return f
}

func (f *facts) run(onFact func(strategy.Fact)) {
	defer close(f.done)
	for range f.wake {
		f.mu.Lock()
		queue, closed := f.queue, f.closed
		f.queue = nil
		f.mu.Unlock()
		for _, fact := range queue {
			if onFact != nil {
				onFact(fact)
			}
		}
		if closed {
			return
		}
	}
}

func (f *facts) emit(fact strategy.Fact) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queue = append(f.queue, fact)
	f.signal()
}

// close passes on the rest. Nothing may be emitted after it.
func (f *facts) close() {
	f.mu.Lock()
	f.closed = true
	f.signal()
	f.mu.Unlock()
	<-f.done
}

func (f *facts) signal() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}
