package node

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/strategy"
)

// FailureGrace is the grace of ranks after a diagnosed failure of one of them.
const FailureGrace = 3 * time.Second

const (
	// outputBound is how long gpurun keeps reading after the last rank is gone, if another process holds a
	// rank's output open.
	outputBound = 5 * time.Second
	// earlyBound is the delay of the warning about a rank that ended while others run. Ranks of one job
	// usually end within seconds of each other.
	earlyBound = 30 * time.Second
	// leftBound is the delay of the note that gpurun waits for processes that ranks left behind. Loader
	// workers take a fraction of a second to end.
	leftBound = time.Second
)

// collect waits for the ranks, sweeps up what they left, reads their output to the end and closes the facts.
// It is the attempt's only goroutine.
func (a *attempt) collect() {
	defer close(a.facts)
	defer a.linger()
	defer func() {
		if a.lostPatience != nil {
			a.lostPatience()
		}
	}()
	defer a.node.signals.leave()
	defer a.closeEnds()
	if failed := a.awaitExits(); failed {
		a.report(a.group.Stop(FailureGrace))
	} else {
		a.awaitLeft()
	}
	ctx, cancel := context.WithTimeout(context.Background(), outputBound)
	defer cancel()
	if err := a.out.Wait(ctx); err != nil {
		a.facts <- strategy.Fact{Time: time.Now(), Rank: -1, Source: "gpurun", Content: strategy.Gap(fmt.Sprintf("a rank's log is not complete: %v", err))}
	}
	a.programs.Stop()
	a.stopProbe()
	a.stopSampling()
	a.snapshots()
	a.saving.stop()
	a.stopAlarms()
	a.compareEnvironments()
	if err := a.swap.close(); err != nil {
		a.facts <- strategy.Fact{Time: time.Now(), Rank: -1, Source: "gpurun", Content: strategy.Gap(fmt.Sprintf("remove the files offloaded to NVMe: %v", err))}
	}
	for _, f := range append(a.counters.Rise(), a.stored.facts()...) {
		a.facts <- f
	}
}

// awaitExits waits for the ranks' ends, and reports whether one failed. It warns if a rank ends well long
// before the others, which may wait for it in a collective forever; torchrun does not notice that.
func (a *attempt) awaitExits() (failed bool) {
	early := time.NewTimer(time.Hour)
	early.Stop()
	defer early.Stop()
	for left := a.local; ; {
		select {
		case f, open := <-a.group.Exits():
			if !open {
				return failed
			}
			if left--; left == 0 {
				a.awaitPrograms(&f)
				a.lookAtProbe() // the hook may report a failure despite exit code 0
			}
			failed = failed || f.Exit().Code != 0
			a.mu.Lock()
			a.ended[f.Rank] = true
			a.well[f.Rank] = f.Exit().Code == 0
			a.mu.Unlock()
			if early.Stop(); left > 0 && !failed && !f.Exit().Stopped {
				early.Reset(a.node.opts.Early)
			}
			a.facts <- f
		case <-early.C:
			a.node.log.Note(a.unfinished())
		}
	}
}

// unfinished names the ranks that have ended while others run.
func (a *attempt) unfinished() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var gone []string
	for _, k := range a.ranks() {
		if a.ended[k] {
			gone = append(gone, fmt.Sprint(k))
		}
	}
	return fmt.Sprintf("warning: rank %s ended with exit code 0 %s ago, and %d of %d are still running; if they wait for it in a collective, the job hangs",
		strings.Join(gone, ", "), a.node.opts.Early, a.local-len(gone), a.local)
}

// patience returns the context that bounds how long processes left behind may run. Their time begins with the
// first call.
func (a *attempt) patience() context.Context {
	if a.patient == nil {
		a.patient, a.lostPatience = context.WithTimeout(a.lingering, max(0, a.node.opts.Grace-FailureGrace))
	}
	return a.patient
}

// awaitLeft gives processes that the ranks left behind the long grace without a signal, since one may be
// finishing an upload. Then it sends SIGTERM and SIGKILL.
func (a *attempt) awaitLeft() {
	told := time.AfterFunc(leftBound, func() {
		a.node.log.Note(fmt.Sprintf("the ranks have ended and left processes behind, which have %s to finish", a.node.opts.Grace))
	})
	a.group.Linger(a.patience())
	told.Stop()
	if blind := a.programs.Leave(); len(blind) > 0 {
		a.node.log.Note(fmt.Sprintf("warning: left in the background, where gpurun cannot follow it: %s", strings.Join(blind, ", ")))
	}
	grace := FailureGrace
	if a.lingering.Err() != nil {
		grace = a.node.opts.Grace // a user's stop
	}
	report := a.group.Stop(grace)
	a.report(report)
	if report.Swept > 0 {
		a.node.log.Note(fmt.Sprintf("warning: killed what the ranks had left behind: %d processes", report.Swept))
	}
}

// report makes facts of the processes that could not be ended.
func (a *attempt) report(r ranks.StopReport) {
	for _, p := range r.Leftover {
		a.facts <- strategy.Fact{Time: time.Now(), Rank: -1, Source: "gpurun", Content: &strategy.Stuck{PID: p.PID, Channel: p.Channel}}
	}
}
