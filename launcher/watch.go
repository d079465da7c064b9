package launcher

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// asleep is by how much a timer is late where gpurun did not run in the meantime.
const asleep = 250 * time.Millisecond

// A watch is the one owner of an attempt's evidence: facts come down one channel
// to one goroutine, which also decides when the ranks have to be stopped.
type watch struct {
	launcher *Launcher
	running  Attempt
	evidence *strategy.Evidence
	outlook  *outlook
	effect   effect

	failure *time.Timer // when it rings, ranks have failed and the gang is stopped
	hang    *time.Timer // when it rings, ranks that may hang are looked at
	due     time.Time   // when hang should ring, zero for never
	woke    time.Time   // when gpurun last found that it had been suspended

	stopping sync.WaitGroup
	stopped  bool
	failed   error // of the store
}

func newWatch(l *Launcher, running Attempt, next Next, evidence *strategy.Evidence) *watch {
	return &watch{
		launcher: l, running: running, evidence: evidence, outlook: newOutlook(),
		effect:  effect{job: l.Job, plan: next.Plan, checkpoint: next.Checkpoint},
		failure: stoppedTimer(), hang: stoppedTimer(),
	}
}

func stoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// run collects facts until the attempt is over. It returns when every rank is
// gone and nothing of the attempt is left to wait for. An error is the store's.
func (w *watch) run(ctx context.Context) error {
	defer w.stopping.Wait()
	defer w.failure.Stop()
	defer w.hang.Stop()
	cancelled := ctx.Done()
	for {
		select {
		case f, open := <-w.running.Facts():
			if !open {
				return w.failed
			}
			w.evidence.Facts = append(w.evidence.Facts, f)
			if f.Proof != nil {
				w.prove(*f.Proof)
			}
			w.weigh(f)
		case <-cancelled:
			cancelled = nil
			w.evidence.StopSignal = signalled(ctx)
			w.stop(w.evidence.StopSignal, w.launcher.Graces.User)
		case <-w.failure.C:
			w.fail()
		case <-w.hang.C:
			w.lookAgain()
		}
	}
}

// weigh sets the timers by what a fact changes.
func (w *watch) weigh(f strategy.Fact) {
	if w.stopped || f.Exit == nil && f.Sighting == nil && f.Kills == nil && f.DriverEvent == nil {
		return
	}
	w.outlook.add(f, time.Now())
	w.failure.Stop()
	if at := w.outlook.deadline(); !at.IsZero() {
		w.failure.Reset(time.Until(at))
	}
	w.lookAgain()
}

// fail stops the ranks because some have failed.
func (w *watch) fail() {
	if rank, f, ok := w.outlook.lingering(); ok {
		w.tell("rank %d raised an exception and has not ended for %s", rank, time.Since(f.at))
	}
	w.stop(int(syscall.SIGTERM), w.launcher.Graces.Failure)
}

// lookAgain stops the ranks if a suspect has been silent for long enough, and else
// sets the time to look again. A rank that goes on writing, an emergency checkpoint
// for example, is left alone as long as it does; one that has gone on for very long
// is no suspect any more.
func (w *watch) lookAgain() {
	w.hang.Stop()
	if w.stopped {
		return
	}
	// Ranks are suspended together with gpurun, or with the whole machine.
	if now := time.Now(); !w.due.IsZero() && now.Sub(w.due) > asleep {
		w.woke = now
	}
	w.due = time.Time{}
	for _, s := range w.outlook.suspects() {
		sign := w.running.LastSign(s.rank)
		patience := max(w.launcher.HangTimeout, 5*sign.Longest)
		if s.trains(sign) || sign.Output.Sub(s.at) >= outliving*patience {
			continue
		}
		last := latest(latest(s.at, sign.Output), latest(sign.Others, w.woke))
		if silent := time.Since(last); silent >= patience {
			w.tell("rank %d printed an out-of-memory traceback and then nothing for %s", s.rank, silent)
			w.stop(int(syscall.SIGTERM), w.launcher.Graces.Failure)
			return
		}
		w.due = earlier(w.due, last.Add(patience))
	}
	if !w.due.IsZero() {
		w.hang.Reset(time.Until(w.due))
	}
}

// tell lets people know why ranks are stopped that have not failed by themselves.
func (w *watch) tell(format string, rank int, since time.Duration) {
	text := fmt.Sprintf(format, rank, since.Round(time.Second)) + ": it hangs, and all ranks are stopped"
	w.failed = errors.Join(w.failed, w.launcher.Store.Append(Noticed{Text: text}))
}

// stop ends the ranks, once; the facts keep flowing meanwhile.
func (w *watch) stop(signal int, grace time.Duration) {
	if w.stopped {
		return
	}
	w.stopped = true
	w.stopping.Go(func() { w.running.Stop(signal, grace) })
}
