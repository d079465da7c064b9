package launcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// A watch is the one owner of an attempt's evidence: facts come down one channel
// to one goroutine, which passes them to the failure detector and keeps its time.
type watch struct {
	launcher *Launcher
	running  Attempt
	evidence *strategy.Evidence
	detector *strategy.Detector
	effect   effect

	// draft writes down how the run will end, before ranks are stopped for somebody who
	// may kill gpurun meanwhile.
	draft func() error

	look *time.Timer // when it rings, the detector has to be asked again
	hold hold        // of ranks that wait to hear from gpurun

	climb climb // to a faster plan

	alone bool // people know that each rank trains by itself

	stopping sync.WaitGroup
	stopped  bool
	failed   error // of the store
}

func newWatch(l *Launcher, running Attempt, next Next, evidence *strategy.Evidence) *watch {
	look := time.NewTimer(time.Hour)
	look.Stop()
	return &watch{
		launcher: l, running: running, evidence: evidence, detector: strategy.NewDetector(evidence),
		effect: effect{job: l.Job, plan: next.Plan, checkpoint: next.Checkpoint, evidence: evidence},
		look:   look, draft: func() error { return nil }, hold: newHold(), climb: newClimb(l, next),
	}
}

// run collects facts until the attempt is over. It returns when every rank is
// gone and nothing of the attempt is left to wait for. An error is the store's.
func (w *watch) run(ctx context.Context) error {
	defer w.stopping.Wait()
	defer w.look.Stop()
	defer w.hold.stop()
	defer w.climb.stop()
	cancelled := ctx.Done()
	w.judge()
	for {
		select {
		case f, open := <-w.running.Facts():
			if !open {
				return w.failed
			}
			w.add(f)
			if f.Memory != nil {
				w.measured(ctx, f)
			}
		case inventory := <-w.climb.moments:
			w.ascend(inventory)
		case <-cancelled:
			cancelled = nil
			w.evidence.StopSignal = signalled(ctx)
			w.failed = errors.Join(w.failed, w.draft())
			w.stop(forRanks(w.evidence.StopSignal), w.launcher.Graces.User)
		case <-w.look.C:
			w.judge()
		case <-w.hold.over.C:
			w.unheard()
		}
	}
}

// add takes a fact that came now.
func (w *watch) add(f strategy.Fact) {
	if f.Sign != nil && !f.Sign.Saved.IsZero() {
		f.Sign.Saved = time.Now() // as the detector learns of it: a replay decides by the same order
	}
	if f.Observed != nil {
		w.tell(w.effect.learn(*f.Observed))
	}
	if f.Said != nil {
		w.hear(f)
	}
	if w.detector.Add(f, time.Now()) {
		w.judge()
	}
	if f.Exit != nil {
		w.exited()
	}
	if f.Observed != nil || f.Said != nil {
		w.heed()
	}
	if f.Said != nil {
		w.tell(w.effect.padded())
		w.release()
		w.apart()
	}
}

// apart warns where each rank trains the whole job by itself.
func (w *watch) apart() {
	if n := w.evidence.Alone(); n > 0 && !w.alone {
		w.alone = true
		w.tell(fmt.Sprintf("warning: none of the %d ranks has joined a process group by its first step: each trains the whole job by itself, and all write the same files; "+
			"the script has to call torch.distributed.init_process_group for RANK of WORLD_SIZE, or wants --nproc-per-node 1 on one node", n))
	}
}

// exited writes down how the ranks ended, once all have: what they left behind is waited
// for, and gpurun may be killed meanwhile. What ended otherwise is known only once all
// output is read.
func (w *watch) exited() {
	e := *w.evidence
	if e.Exits() < e.Ranks {
		return
	}
	e.Ended, e.Notice = time.Now(), w.launcher.World.Notice()
	e.Facts = slices.Concat(e.Facts, w.running.Progress())
	if e.EndedWell() && !e.Unproven() || !w.stopped && strategy.Diagnose(e).OutOfMemory() {
		w.failed = errors.Join(w.failed, w.launcher.Store.Append(Exited{Evidence: e}))
	}
}

// judge stops ranks if the detector says so, and unless these are all sets the time to
// ask it again. It is shown what the suspects last let see of themselves.
func (w *watch) judge() {
	w.look.Stop()
	if w.stopped {
		return
	}
	for _, rank := range w.detector.Watched() {
		sign, now := w.running.LastSign(rank), time.Now()
		w.detector.Add(strategy.Fact{Time: now, Rank: rank, Source: "gpurun", Sign: &sign}, now)
	}
	switch stop, now := w.detector.Verdict(time.Now()); {
	case now && stop.Reason == strategy.StopPeers:
		w.running.StopPeers(int(syscall.SIGTERM), w.detector.Named())
	case now && stop.Reason == strategy.StopStalled:
		w.stalled(stop)
		return
	case now:
		w.tell(stop.Notice())
		w.stop(int(syscall.SIGTERM), w.launcher.Graces.Failure)
		return
	}
	if at := w.detector.Next(); !at.IsZero() {
		w.look.Reset(time.Until(at))
	}
}

// stalled ends an attempt that makes no steps, once its ranks have told where they are.
func (w *watch) stalled(stop strategy.Stop) {
	w.detector.Add(strategy.Fact{Time: stop.At, Rank: -1, Source: "gpurun", Stall: &strategy.Stall{For: stop.For}}, stop.At)
	w.tell(stop.Notice())
	w.tell(w.evidence.Behind(w.running.Progress()))
	w.stopped = true
	w.stopping.Go(func() {
		w.running.Stacks()
		w.running.Stop(int(syscall.SIGTERM), w.launcher.Graces.Failure)
	})
}

// heed stops the ranks at once where a change to the batch did not take effect, or changes
// the scale of the gradients: the job would train something else.
func (w *watch) heed() {
	switch {
	case w.stopped:
	case w.effect.breaksBatch():
		w.halt("the job would train with another global batch: all ranks are stopped")
	case w.effect.lostScale() != "":
		w.halt(w.effect.lostScale() + ": all ranks are stopped")
	}
}

// halt ends an attempt that does not run with what it was given.
func (w *watch) halt(why string) {
	w.evidence.Halted = true
	w.tell(why)
	w.stop(int(syscall.SIGTERM), w.launcher.Graces.Failure)
}

// tell lets people know of something, unless there is nothing to say.
func (w *watch) tell(text string) {
	if text != "" {
		w.failed = errors.Join(w.failed, w.launcher.Store.Append(Noticed{Text: text}))
	}
}

// forRanks is the signal that ends ranks when gpurun is stopped by another one: jobs that
// save their state at the end wait for SIGTERM, and have no handler for SIGHUP.
func forRanks(signal int) int {
	if signal == int(syscall.SIGHUP) {
		return int(syscall.SIGTERM)
	}
	return signal
}

// stop ends the ranks, once; the facts keep flowing meanwhile.
func (w *watch) stop(signal int, grace time.Duration) {
	if w.stopped {
		return
	}
	w.stopped = true
	w.stopping.Go(func() { w.running.Stop(signal, grace) })
}
