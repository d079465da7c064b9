package launcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// A watch owns an attempt's evidence: one goroutine receives facts from one channel, passes them to the
// failure detector, and runs the detector's timer.
type watch struct {
	launcher *Launcher
	running  Attempt
	evidence *strategy.Evidence
	detector *strategy.Detector
	effect   effect

	// draft writes how the run will end before a signal stops the ranks: gpurun may be killed meanwhile.
	draft func() error

	look *time.Timer // time of the detector's next judgment
	hold hold        // of ranks that wait for Release

	speedup speedup // to a faster plan

	inPlace []strategy.InPlace // the repeats that the journal has

	pressure []strategy.RankPressure // the memory pressure that was warned of

	alone bool // gpurun has warned that each rank trains by itself

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
		look:   look, draft: func() error { return nil }, hold: newHold(), speedup: newSpeedup(l, next),
	}
}

// run collects facts until every rank is gone and nothing of the attempt is left. The error comes from the
// store.
func (w *watch) run(ctx context.Context) error {
	defer w.stopping.Wait()
	defer w.look.Stop()
	defer w.hold.stop()
	defer w.speedup.stop()
	cancelled := ctx.Done()
	w.judge()
	for {
		select {
		case f, open := <-w.running.Facts():
			if !open {
				w.again(true)
				return w.failed
			}
			w.add(f)
			if f.Memory() != nil {
				w.measured(ctx, f)
			}
		case inventory := <-w.speedup.moments:
			w.ascend(inventory)
		case <-cancelled:
			cancelled = nil
			w.evidence.StopSignal = signalled(ctx)
			w.failed = errors.Join(w.failed, w.draft())
			w.stop(forRanks(w.evidence.StopSignal), w.launcher.Graces.User)
		case <-w.look.C:
			w.judge()
		case <-w.hold.over.C:
			w.late()
		}
	}
}

// add takes in a fact.
func (w *watch) add(f strategy.Fact) {
	if sign := strategy.As[*strategy.Sign](f); sign != nil && !sign.Saved.IsZero() {
		sign.Saved = w.evidence.Clock(time.Now()) // the time at which the detector gets it, so that a replay decides the same
	}
	f.Time = w.evidence.Clock(f.Time)
	if strategy.As[*strategy.ObservedSetting](f) != nil {
		w.notice(w.effect.learn(*strategy.As[*strategy.ObservedSetting](f)))
	}
	if strategy.As[*strategy.ProcessReport](f) != nil {
		w.compareReported(f)
	}
	if w.detector.Add(f, time.Now()) {
		w.judge()
	}
	if f.Exit() != nil {
		w.exited()
	}
	if strategy.As[*strategy.ObservedSetting](f) != nil || strategy.As[*strategy.ProcessReport](f) != nil {
		w.heed()
	}
	if strategy.As[*strategy.ProcessReport](f) != nil {
		w.again(false)
		w.warnOfPressure()
		w.notice(w.effect.padded())
		w.release()
		w.apart()
	}
}

// apart warns if each rank trains the whole job by itself.
func (w *watch) apart() {
	if n := w.evidence.Alone(); n > 0 && !w.alone {
		w.alone = true
		w.notice(fmt.Sprintf("warning: none of the %d ranks has joined a process group by its first step: each trains the whole job by itself, and all write the same files; "+
			"the script has to call torch.distributed.init_process_group for RANK of WORLD_SIZE, or needs --nproc-per-node 1 on one node", n))
	}
}

// exited journals how the ranks ended, once all have: gpurun may be killed while it waits for processes that
// they left behind. Other ends are known only after all output is read.
func (w *watch) exited() {
	e := *w.evidence
	if e.Exits() < e.Ranks {
		return
	}
	e.Ended, e.Notice = e.Clock(time.Now()), w.launcher.World.Notice()
	e.Facts = slices.Concat(e.Facts, w.progress())
	if e.EndedWell() && !e.Unproven() || !w.stopped && strategy.Diagnose(e).OutOfMemory() {
		w.failed = errors.Join(w.failed, w.launcher.Store.Append(Exited{Evidence: e}))
	}
}

// progress is the latest step of each rank.
func (w *watch) progress() []strategy.Fact {
	all := w.running.Progress()
	for i := range all {
		all[i].Time = w.evidence.Clock(all[i].Time)
	}
	return all
}

// judge has the detector judge the attempt, with the latest signs of the suspects. It stops ranks if the
// detector requires that, and else sets the timer for the next judgment.
func (w *watch) judge() {
	w.look.Stop()
	if w.stopped {
		return
	}
	for _, rank := range w.detector.Watched() {
		sign, now := w.running.LastSign(rank), time.Now()
		for _, at := range []*time.Time{&sign.Output, &sign.Step, &sign.Others, &sign.Anyone, &sign.Awake} {
			*at = w.evidence.Clock(*at)
		}
		w.detector.Add(strategy.Fact{Time: w.evidence.Clock(now), Rank: rank, Source: "gpurun", Content: &sign}, now)
	}
	switch stop, now := w.detector.Verdict(time.Now()); {
	case now && stop.Reason == strategy.StopPeers:
		w.running.StopPeers(int(syscall.SIGTERM), w.detector.Named())
	case now && stop.Reason == strategy.StopStalled:
		w.stalled(stop)
		return
	case now:
		w.notice(stop.Notice())
		w.stop(int(syscall.SIGTERM), w.launcher.Graces.Failure)
		return
	}
	if at := w.detector.Next(); !at.IsZero() {
		w.look.Reset(time.Until(at))
	}
}

// stalled ends an attempt that makes no steps, once its ranks have written their stacks.
func (w *watch) stalled(stop strategy.Stop) {
	w.detector.Add(strategy.Fact{Time: w.evidence.Clock(stop.At), Rank: -1, Source: "gpurun",
		Content: &strategy.Stall{For: stop.For}}, stop.At)
	w.notice(stop.Notice())
	w.notice(w.evidence.Behind(w.progress()))
	w.stopped = true
	w.stopping.Go(func() {
		w.running.Stacks()
		w.running.Stop(int(syscall.SIGTERM), w.launcher.Graces.Failure)
	})
}

// heed stops the ranks at once if a change to the batch has no effect, or changes the scale of the gradients:
// the job would train something else.
func (w *watch) heed() {
	switch {
	case w.stopped:
	case w.effect.breaksBatch():
		w.halt(cmp.Or(w.effect.unconfirmed(w.effect.lostBatch()),
			"the job would train with another global batch: all ranks are stopped"))
	case w.effect.lostScale() != "":
		w.halt(w.effect.lostScale() + ": all ranks are stopped")
	}
}

// halt ends an attempt that does not run with its plan.
func (w *watch) halt(why string) {
	w.evidence.Halted = true
	w.notice(why)
	w.stop(int(syscall.SIGTERM), w.launcher.Graces.Failure)
}

// notice shows the user a text, unless it is empty.
func (w *watch) notice(text string) {
	if text != "" {
		w.failed = errors.Join(w.failed, w.launcher.Store.Append(Noticed{Text: text}))
	}
}

// forRanks returns the signal to send to the ranks when a signal stops gpurun: SIGTERM for SIGHUP, since jobs
// that save their state at the end handle only SIGTERM.
func forRanks(signal int) int {
	if signal == int(syscall.SIGHUP) {
		return int(syscall.SIGTERM)
	}
	return signal
}

// stop ends the ranks, once; facts continue to come meanwhile.
func (w *watch) stop(signal int, grace time.Duration) {
	if w.stopped {
		return
	}
	w.stopped = true
	w.stopping.Go(func() { w.running.Stop(signal, grace) })
}
