package node

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher/proc"
	"github.com/gpurun/gpurun/strategy"
)

// FailureGrace is what ranks get to end by themselves after a diagnosed failure of
// one of them.
const FailureGrace = 3 * time.Second

const (
	// outputBound is how long to read on after the last rank is gone, for a process
	// that was left over and holds a rank's output open.
	outputBound = 5 * time.Second
	// earlyBound is after which time people are told of a rank that ended while
	// others go on: ranks of one job end within seconds of each other.
	earlyBound = 30 * time.Second
	// leftBound is after which time people are told that gpurun waits for what
	// ranks left behind. Loader workers take part of a second to go.
	leftBound = time.Second
)

// collect waits for the ranks, sweeps up what they left, reads their output to
// the end and closes the facts. It is the attempt's one goroutine.
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
		a.facts <- strategy.Fact{Time: time.Now(), Rank: -1, Source: "gpurun", Gap: fmt.Sprintf("a rank's log is not complete: %v", err)}
	}
	a.programs.Stop()
	a.stopProbe()
	a.stopSampling()
	a.snapshots()
	a.saving.stop()
	a.stopAlarms()
	a.stopSettings()
	if err := a.swap.close(); err != nil {
		a.facts <- strategy.Fact{Time: time.Now(), Rank: -1, Source: "gpurun", Gap: fmt.Sprintf("remove what was offloaded to NVMe: %v", err)}
	}
	for _, f := range a.counters.Rise() {
		a.facts <- f
	}
}

// awaitExits waits for the ranks' ends, and reports whether one was bad. A rank
// that ends well long before the others is told of: torchrun forgets it, and the
// others may wait for it in a collective for good.
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
				a.lookAtProbe() // what says that an exit code of 0 hides a failure comes first
			}
			failed = failed || f.Exit.Code != 0
			a.mu.Lock()
			a.ended[f.Rank] = true
			a.well[f.Rank] = f.Exit.Code == 0
			a.mu.Unlock()
			if early.Stop(); left > 0 && !failed && !f.Exit.Stopped {
				early.Reset(a.node.opts.Early)
			}
			a.facts <- f
		case <-early.C:
			a.node.log.Note(a.unfinished())
		}
	}
}

// unfinished says which ranks have ended while others go on.
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

// patience lasts as long as what the ranks left behind has to finish, from when it is asked
// for first.
func (a *attempt) patience() context.Context {
	if a.patient == nil {
		a.patient, a.lostPatience = context.WithTimeout(a.lingering, max(0, a.node.opts.Grace-FailureGrace))
	}
	return a.patient
}

// awaitLeft gives what the ranks left behind the long grace without a signal, since
// it may be an upload that finishes; then SIGTERM and SIGKILL.
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

// report makes facts of what could not be ended.
func (a *attempt) report(r proc.StopReport) {
	for _, p := range r.Leftover {
		a.facts <- strategy.Fact{Time: time.Now(), Rank: -1, Source: "gpurun", Stuck: &strategy.Stuck{PID: p.PID, Channel: p.Channel, Debugger: p.Debugger}}
	}
}
