package node

import (
	"context"
	"sync"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
)

// checkpoints finds the checkpoints that a job writes while it runs.
type checkpoints struct {
	notice   NoticeOptions
	complete func(path string) bool
}

// Checkpoints returns the finder of the job's checkpoints for the launcher; nil if the job cannot resume.
// complete reports whether a checkpoint still exists and is complete.
func (o NoticeOptions) Checkpoints(complete func(path string) bool) launcher.Checkpoints {
	if o.Checkpoint == nil {
		return nil
	}
	return checkpoints{o, complete}
}

// Saved waits for a complete checkpoint that was written at or after since, at least in part, and that
// nothing has written to for a while. The job may have begun another one meanwhile.
func (c checkpoints) Saved(ctx context.Context, since time.Time) (path string, found bool) {
	look := time.NewTicker(checkpointLook)
	defer look.Stop()
	for seen := (freshCheckpoint{}); ; {
		select {
		case <-ctx.Done():
			return "", false
		case now := <-look.C:
			if seen.complete(c.notice.Checkpoint, since, now) {
				return seen.path, true
			}
		}
	}
}

// Complete reports whether a checkpoint still exists and is complete.
func (c checkpoints) Complete(path string) bool { return c.complete(path) }

// Deadline is the time by which the run must be over, zero if not known.
func (c checkpoints) Deadline(ctx context.Context) time.Time {
	return c.notice.Ends(ctx)
}

// savingPause is the interval at which the checkpoints are checked after a rank has reported the cause of its
// end. strategy.PeerWindow is several intervals long.
const savingPause = 50 * time.Millisecond

// A savingWatch finds out whether the job's checkpoint grows after a rank has reported the cause of its end:
// a peer, or that rank's exit handler, may be saving.
type savingWatch struct {
	growing func(context.Context) (grown func(context.Context) bool) // nil: no checkpoint is watched
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

// see passes on a rank's report of its own end, and begins to look if it names a cause.
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
			w.emit(strategy.Fact{Time: now, Rank: -1, Source: "gpurun", Content: &strategy.Sign{Saved: now}})
			return
		}
	}
}

// stop ends the watch. see must not be called afterwards.
func (w *savingWatch) stop() {
	w.cancel()
	w.looking.Wait()
}
