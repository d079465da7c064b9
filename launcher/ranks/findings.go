package ranks

import (
	"slices"
	"sync"
	"time"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

const (
	// keepEach is how many findings of a rank are passed on as they come, and how
	// many of the newest are kept for the end once there were more.
	keepEach = 64
	// keepAgain is how often a finding that later lines changed is passed on again; its last
	// state follows at the end.
	keepAgain = 8
)

// A budget bounds the findings of one kind of a rank: those that end a traceback,
// or those that do not. A flood of one kind never displaces the other.
type budget struct {
	sent  []sent
	newer []strategy.Fact // the newest beyond those that were sent, a ring
	next  int             // the ring's oldest, once it is full
}

// A sent finding was passed on, and may have changed since.
type sent struct {
	fact  strategy.Fact
	again int
	late  bool // fact has not been passed on in this state
}

// replace takes a later state of a known finding, with the time of the first, and reports
// whether the finding is known, and whether its new state is to be passed on now.
func (b *budget) replace(fact *strategy.Fact) (known, now bool) {
	if i := slices.IndexFunc(b.sent, func(s sent) bool { return s.fact.Same(*fact) }); i >= 0 {
		s := &b.sent[i]
		*fact = s.fact.Updated(*fact)
		s.fact = *fact
		s.again++
		s.late = s.again > keepAgain
		return true, !s.late
	}
	if i := slices.IndexFunc(b.newer, func(f strategy.Fact) bool { return f.Same(*fact) }); i >= 0 {
		*fact = b.newer[i].Updated(*fact)
		b.newer[i] = *fact
		return true, false
	}
	return false, false
}

// add takes a new finding and reports whether it is to be passed on now. If not,
// it is kept in place of the oldest kept one.
func (b *budget) add(fact strategy.Fact) bool {
	if len(b.sent) < keepEach {
		b.sent = append(b.sent, sent{fact: fact})
		return true
	}
	if len(b.newer) < keepEach {
		b.newer = append(b.newer, fact)
		return false
	}
	b.newer[b.next] = fact
	b.next = (b.next + 1) % keepEach
	return false
}

// rest returns what has not been passed on and was not displaced.
func (b *budget) rest() []strategy.Fact {
	rest := slices.Clone(b.newer)
	for _, s := range b.sent {
		if s.late {
			rest = append(rest, s.fact)
		}
	}
	return rest
}

// found takes a finding in one of the rank's streams.
func (r *rank) found(source string, now time.Time, seen cause.Finding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fact := strategy.Fact{Time: now, Rank: r.global, Source: source, Content: (*strategy.Finding)(&seen)}
	known, pass := r.logged.replace(&fact)
	if !known {
		known, pass = r.raised.replace(&fact)
	}
	switch {
	case known:
	case seen.Raised:
		pass = r.raised.add(fact)
	default:
		pass = r.logged.add(fact)
	}
	if pass {
		r.facts.emit(fact)
	}
}

// finish passes on what was kept for the end: the newest findings, in the order
// of time, and the rank's progress.
func (r *rank) finish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	rest := append(r.logged.rest(), r.raised.rest()...)
	slices.SortStableFunc(rest, func(a, b strategy.Fact) int { return a.Time.Compare(b.Time) })
	for _, fact := range rest {
		r.facts.emit(fact)
	}
	if f, ok := r.stepsNow(); ok {
		r.facts.emit(f)
	}
}

// stepsNow is the rank's progress; false where it has shown no step. The caller holds mu.
func (r *rank) stepsNow() (strategy.Fact, bool) {
	progress := r.progress
	return strategy.Fact{Time: r.activity.Step, Rank: r.global, Source: r.steppedIn, Content: &progress},
		progress.Steps > 0
}

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
