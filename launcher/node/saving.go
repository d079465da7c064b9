package node

import (
	"context"
	"sync"
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// savingPause is how often the checkpoints are looked at once a rank has named the cause
// of its end. The peers' time is strategy.PeerWindow: several looks fit in.
const savingPause = 50 * time.Millisecond

// A savingWatch tells whether the job's checkpoint grows after a rank has named the cause
// of its end: a peer, or what that rank registered for its end, may be saving.
type savingWatch struct {
	growing func(context.Context) (grown func(context.Context) bool) // nil: nobody looks
	emit    func(strategy.Fact)

	once    sync.Once
	looking sync.WaitGroup
	ctx     context.Context
	cancel  context.CancelFunc
}

func newSavingWatch(growing func(context.Context) func(context.Context) bool, emit func(strategy.Fact)) *savingWatch {
	w := &savingWatch{growing: growing, emit: emit}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// see passes on what a rank tells of its own end, and begins to look where that is a
// cause.
func (w *savingWatch) see(f strategy.Fact) {
	w.emit(f)
	if f.NamesCause() && w.growing != nil {
		w.once.Do(func() { w.looking.Go(w.look) })
	}
}

// look emits one sign if the checkpoint grows while the peers still have time.
func (w *savingWatch) look() {
	ctx, cancel := context.WithTimeout(w.ctx, strategy.PeerWindow)
	defer cancel()
	grown := w.growing(ctx)
	tick := time.NewTicker(savingPause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if grown(ctx) {
			now := time.Now()
			w.emit(strategy.Fact{Time: now, Rank: -1, Source: "gpurun", Sign: &strategy.Sign{Saved: now}})
			return
		}
	}
}

// stop ends the looking. see must not be called any more.
func (w *savingWatch) stop() {
	w.cancel()
	w.looking.Wait()
}
