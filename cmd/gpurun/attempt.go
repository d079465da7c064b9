package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/host"
	"github.com/gpurun/gpurun/launcher/output"
	"github.com/gpurun/gpurun/launcher/proc"
	"github.com/gpurun/gpurun/strategy"
)

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

// An attempt is the running ranks of this machine.
type attempt struct {
	node     *node
	n        int
	began    time.Time
	dir      string
	world    int
	group    *proc.Group
	out      *output.Output
	counters *host.Counters
	facts    chan strategy.Fact
	// stopProbe ends the watch over what ranks tell of their own end.
	stopProbe func()
	// stopProofs ends the watch over the files in which a framework writes what it
	// uses, after a last look.
	stopProofs func()
	swap       *swap // nil where nothing is offloaded to NVMe
	// lingering is cancelled by linger, when what ranks left behind gets no more
	// time to finish.
	lingering context.Context
	linger    context.CancelFunc

	mu     sync.Mutex   // guards what follows
	ended  map[int]bool // ranks
	paused bool         // the ranks are stopped, until SIGCONT
	awake  time.Time    // when they last went on after a pause
}

// Facts delivers what is observed; collect closes it.
func (a *attempt) Facts() <-chan strategy.Fact { return a.facts }

func (a *attempt) emit(f strategy.Fact) { a.facts <- f }

// ranks are the global ranks on this machine.
func (a *attempt) ranks() []int {
	var ranks []int
	for k := range a.world {
		ranks = append(ranks, k)
	}
	return ranks
}

// Stop ends the ranks and all that they started. What cannot be ended is told by
// collect.
func (a *attempt) Stop(signal int, grace time.Duration) {
	a.linger()
	a.group.Stop(grace, syscall.Signal(signal))
}

// kill ends the ranks and all that they started without any grace.
func (a *attempt) kill() {
	a.linger()
	a.group.Kill()
}

// LastSign is what a rank last let see of itself. One that was paused could not
// write.
func (a *attempt) LastSign(rank int) strategy.Sign {
	own, all := a.out.Activity(rank), a.out.Activity()
	sign := strategy.Sign{Output: own.Output, Step: own.Step, Others: all.Step, Longest: strategy.Seconds(all.Longest)}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.paused:
		sign.Output = time.Now()
	case a.awake.After(sign.Output):
		sign.Output = a.awake
	}
	return sign
}

// pause stops the ranks until resume lets them go on.
func (a *attempt) pause() {
	a.mu.Lock()
	a.paused = true
	a.mu.Unlock()
	a.group.Signal(unix.SIGTSTP)
}

func (a *attempt) resume() {
	a.mu.Lock()
	a.paused, a.awake = false, time.Now()
	a.mu.Unlock()
	a.group.Signal(unix.SIGCONT)
}

// collect waits for the ranks, sweeps up what they left, reads their output to
// the end and closes the facts. It is the attempt's one goroutine.
func (a *attempt) collect() {
	defer close(a.facts)
	defer a.linger()
	defer a.node.desk.leave()
	if failed := a.awaitExits(); failed {
		a.report(a.group.Stop(failureGrace))
	} else {
		a.awaitLeft()
	}
	ctx, cancel := context.WithTimeout(context.Background(), outputBound)
	defer cancel()
	if err := a.out.Wait(ctx); err != nil {
		a.facts <- strategy.Fact{Time: time.Now(), Rank: -1, Source: "gpurun", Gap: fmt.Sprintf("a rank's log is not complete: %v", err)}
	}
	a.stopProbe()
	a.stopProofs()
	if err := a.swap.close(); err != nil {
		a.facts <- strategy.Fact{Time: time.Now(), Rank: -1, Source: "gpurun", Gap: fmt.Sprintf("remove what was offloaded to NVMe: %v", err)}
	}
	for _, f := range a.counters.Rise() {
		a.facts <- f
	}
}

// watchProofs looks for what the framework writes of its settings until stopProofs.
func (a *attempt) watchProofs(w *proofWatch) {
	ctx, cancel := context.WithCancel(context.Background())
	var looking sync.WaitGroup
	looking.Go(func() { w.run(ctx) })
	a.stopProofs = func() { cancel(); looking.Wait() }
}

// awaitExits waits for the ranks' ends, and reports whether one was bad. A rank
// that ends well long before the others is told of: torchrun forgets it, and the
// others may wait for it in a collective for good.
func (a *attempt) awaitExits() (failed bool) {
	early := time.NewTimer(time.Hour)
	early.Stop()
	defer early.Stop()
	for left := a.world; ; {
		select {
		case f, open := <-a.group.Exits():
			if !open {
				return failed
			}
			left--
			failed = failed || f.Exit.Code != 0
			a.mu.Lock()
			a.ended[f.Rank] = true
			a.mu.Unlock()
			if early.Stop(); left > 0 && !failed && !f.Exit.Stopped {
				early.Reset(a.node.early)
			}
			a.facts <- f
		case <-early.C:
			a.node.ledger.note(a.unfinished())
		}
	}
}

// unfinished says which ranks have ended while others go on.
func (a *attempt) unfinished() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var gone []string
	for k := range a.world {
		if a.ended[k] {
			gone = append(gone, fmt.Sprint(k))
		}
	}
	return fmt.Sprintf("warning: rank %s ended with exit code 0 %s ago, and %d of %d go on; if they wait for it in a collective, the job hangs",
		strings.Join(gone, ", "), a.node.early, a.world-len(gone), a.world)
}

// awaitLeft gives what the ranks left behind the long grace without a signal, since
// it may be an upload that finishes; then SIGTERM and SIGKILL.
func (a *attempt) awaitLeft() {
	told := time.AfterFunc(leftBound, func() {
		a.node.ledger.note(fmt.Sprintf("the ranks have ended and left processes behind, which have %s to finish", a.node.grace))
	})
	patience, done := context.WithTimeout(a.lingering, max(0, a.node.grace-failureGrace))
	defer done()
	a.group.Linger(patience)
	told.Stop()
	grace := failureGrace
	if a.lingering.Err() != nil {
		grace = a.node.grace // a user's stop
	}
	report := a.group.Stop(grace)
	a.report(report)
	if report.Swept > 0 {
		a.node.ledger.note(fmt.Sprintf("warning: killed what the ranks had left behind: %d processes", report.Swept))
	}
}

// report makes facts of what could not be ended.
func (a *attempt) report(r proc.StopReport) {
	for _, p := range r.Leftover {
		a.facts <- strategy.Fact{Time: time.Now(), Rank: -1, Source: "gpurun", Stuck: &strategy.Stuck{PID: p.PID, Channel: p.Channel}}
	}
}

// state says what the ranks do, for SIGQUIT.
func (a *attempt) state(now time.Time) string {
	pids := a.group.PIDs()
	a.mu.Lock()
	ended := len(a.ended)
	a.mu.Unlock()
	said := fmt.Sprintf("attempt %d has run for %s, %d of %d ranks have ended", a.n, now.Sub(a.began).Round(time.Second), ended, a.world)
	ranks := make([]int, 0, len(pids))
	for k := range pids {
		ranks = append(ranks, k)
	}
	slices.Sort(ranks)
	for _, k := range ranks {
		last := "nothing written yet"
		if at := a.out.Activity(k).Output; !at.IsZero() {
			last = fmt.Sprintf("last wrote %s ago", now.Sub(at).Round(time.Second))
		}
		said += fmt.Sprintf("; rank %d: pid %d, %s", k, pids[k], last)
	}
	return said
}
