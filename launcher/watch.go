package launcher

import (
	"context"
	"sync"
	"syscall"
	"time"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// A watch is the one owner of an attempt's evidence: facts come down one channel
// to one goroutine, which also decides when the ranks have to be stopped.
type watch struct {
	launcher *Launcher
	running  Attempt
	evidence *strategy.Evidence

	failed  bool        // a rank ended badly by itself
	failure *time.Timer // when it rings, the gang is stopped
	hang    *time.Timer // when it rings, a rank that raised is looked at
	raised  *suspect    // the rank that hang is about

	stopping sync.WaitGroup
	stopped  bool
}

// A suspect is a rank that printed an out-of-memory traceback and lives on.
type suspect struct {
	rank int
	at   time.Time
}

func newWatch(l *Launcher, running Attempt, evidence *strategy.Evidence) *watch {
	return &watch{launcher: l, running: running, evidence: evidence, failure: stoppedTimer(), hang: stoppedTimer()}
}

func stoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// run collects facts until the attempt is over. It returns when every rank is
// gone and nothing of the attempt is left to wait for.
func (w *watch) run(ctx context.Context) {
	defer w.stopping.Wait()
	defer w.failure.Stop()
	defer w.hang.Stop()
	cancelled := ctx.Done()
	for {
		select {
		case f, open := <-w.running.Facts():
			if !open {
				return
			}
			w.evidence.Facts = append(w.evidence.Facts, f)
			w.weigh(f)
		case <-cancelled:
			cancelled = nil
			w.evidence.StopSignal = signalled(ctx)
			w.stop(w.evidence.StopSignal, w.launcher.Graces.User)
		case <-w.failure.C:
			w.stop(int(syscall.SIGTERM), w.launcher.Graces.Failure)
		case <-w.hang.C:
			w.lookAgain()
		}
	}
}

// weigh reacts to a fact that says that the attempt is failing.
func (w *watch) weigh(f strategy.Fact) {
	switch {
	case f.Exit != nil && f.Exit.Code != 0 && !f.Exit.Stopped && !w.failed:
		w.failed = true
		w.failure.Reset(w.window())
	case f.Sighting != nil && (f.Source == "error.json" || f.Source == "probe") && !w.failed:
		w.failed = true
		w.failure.Reset(strongWindow)
	case f.Sighting != nil && w.failed && !f.Sighting.Symptom:
		// The cause itself has come: no need to wait for it any longer.
	case f.Sighting != nil && f.Sighting.Raised && isOOM(f.Sighting.Code) && !w.failed && w.raised == nil:
		w.raised = &suspect{rank: f.Rank, at: f.Time}
		w.hang.Reset(w.patience())
	}
}

func isOOM(c cause.Code) bool { return c == cause.CUDAOOM || c == cause.HostOOM }

// window is how long to gather the other ranks' last words.
func (w *watch) window() time.Duration {
	symptoms := false
	for _, f := range w.evidence.Facts {
		if f.Sighting == nil {
			continue
		}
		if !f.Sighting.Symptom {
			return collectWindow
		}
		symptoms = true
	}
	if symptoms {
		return symptomWindow
	}
	return collectWindow
}

// patience is how long the suspect may be silent: the hang timeout, or five
// times its longest step, whichever is longer.
func (w *watch) patience() time.Duration {
	_, longest := w.running.LastSign(w.raised.rank)
	return max(w.launcher.HangTimeout, 5*longest)
}

// lookAgain stops the ranks if the suspect has been silent for long enough. A
// rank that goes on writing, an emergency checkpoint for example, is left alone
// as long as it does.
func (w *watch) lookAgain() {
	if w.raised == nil || w.stopped {
		return
	}
	last, _ := w.running.LastSign(w.raised.rank)
	if last.Before(w.raised.at) {
		last = w.raised.at
	}
	if left := w.patience() - time.Since(last); left > 0 {
		w.hang.Reset(left)
		return
	}
	w.stop(int(syscall.SIGTERM), w.launcher.Graces.Failure)
}

// stop ends the ranks, once; the facts keep flowing meanwhile.
func (w *watch) stop(signal int, grace time.Duration) {
	if w.stopped {
		return
	}
	w.stopped = true
	w.stopping.Go(func() { w.running.Stop(signal, grace) })
}
