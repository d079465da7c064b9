package node

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/hook"
	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// An attempt is the running ranks of this machine.
type attempt struct {
	node     *Node
	n        int // the attempt's number
	began    time.Time
	dir      string
	local    int // the number of ranks here
	meeting  launcher.Meeting
	group    *ranks.Group
	out      *ranks.Output
	counters *ranks.Counters
	facts    chan strategy.Fact
	probe    *hook.Installed // nil if the ranks run without the hook
	measured measured        // memory that the ranks' processes measured
	// stopProbe ends the watch for the ranks' reports of their own end. lookAtProbe passes on the reports so
	// far.
	stopProbe, lookAtProbe func()
	// programs follows the Python programs below a shell; nil if the rank is no shell.
	programs *hook.Programs
	// saving looks for growing checkpoints once a rank has reported why it ends.
	saving *savingWatch
	// stopAlarms ends the watch for the devices' alarms.
	stopAlarms func()
	asked      map[string]string // variables that gpurun set
	// stopSampling takes a last sample, and ends the sampling.
	stopSampling func()
	stored       storedPaths
	swap         *swap    // nil without offloading to NVMe
	ends         *os.File // nil if it cannot be created
	// lingering is cancelled by linger, when processes that ranks left behind get no more time.
	lingering context.Context
	linger    context.CancelFunc
	// patient is the context of patience, for the goroutine of collect alone.
	patient      context.Context
	lostPatience context.CancelFunc

	mu       sync.Mutex                 // guards what follows
	ended    map[int]bool               // ranks
	well     map[int]bool               // ranks that ended with 0
	steps    map[int]hook.OptimizerStep // latest step of each rank's process; its time is by onClock
	reported map[int]time.Time          // this time as the process reported it
	again    map[int][]strategy.InPlace // by rank, the steps that it did again in place
	paused   bool                       // the ranks are stopped until SIGCONT
	awake    time.Time                  // end of the last pause
}

// Facts returns the channel of observations, which collect closes.
func (a *attempt) Facts() <-chan strategy.Fact { return a.facts }

func (a *attempt) emit(f strategy.Fact) {
	a.stored.note(&f)
	// The job's own text is part of gpurun's sentences from here on.
	a.facts <- f.WithText(a.node.opts.Output.Mask.Output)
}

// alarm passes on the state of the devices, and warns the user of other users' memory and of broken devices.
func (a *attempt) alarm(f strategy.Fact) {
	if e := f.DriverEvent(); e != nil && e.Kind == cause.UnfitEvent {
		a.node.log.Note("warning: " + e.Text())
	}
	if strategy.As[*strategy.Tenant](f) != nil {
		a.node.log.Note(tenancy(strategy.As[*strategy.Tenant](f)))
	}
	a.emit(f)
}

// ranks returns the global ranks of this machine.
func (a *attempt) ranks() []int {
	var ranks []int
	for k := range a.local {
		ranks = append(ranks, a.meeting.Offset+k)
	}
	return ranks
}

// Stop ends the ranks and everything that they started. collect reports processes that cannot be ended.
func (a *attempt) Stop(signal int, grace time.Duration) {
	if signal == int(syscall.SIGKILL) {
		a.kill() // even during a grace
	}
	a.linger()
	a.group.Stop(grace, syscall.Signal(signal))
}

// StopPeers sends a signal to all ranks but those given.
func (a *attempt) StopPeers(signal int, of []int) { a.group.StopPeers(syscall.Signal(signal), of) }

// Release resumes the ranks that wait before their first optimizer step. Ranks that it cannot reach end by
// themselves, with the reason.
func (a *attempt) Release() {
	if a.probe == nil {
		return
	}
	if err := a.probe.Go(); err != nil {
		a.node.log.Note(fmt.Sprintf("warning: the ranks cannot be released: %v", err))
	}
}

// kill ends the ranks and everything that they started, without a grace.
func (a *attempt) kill() {
	a.linger()
	a.group.Kill()
}

// LastSign returns the latest sign of life of a rank. A pause counts as output: a paused rank could not
// write.
func (a *attempt) LastSign(rank int) strategy.Sign {
	own, all := a.out.Activity(rank), a.out.Activity()
	a.mu.Lock()
	defer a.mu.Unlock()
	sign := strategy.Sign{Output: own.Output, Step: own.Step, Others: all.Step, Longest: strategy.Seconds(all.Longest),
		Steps: all.Steps, Anyone: all.Output, Awake: a.awake}
	switch {
	case a.paused:
		sign.Output, sign.Awake = time.Now(), time.Now()
	case a.awake.After(sign.Output):
		sign.Output = a.awake
	}
	return sign
}

// Progress returns the latest step of each rank.
func (a *attempt) Progress() []strategy.Fact { return a.out.Progress() }

// pause stops the ranks until resume.
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

// setPaused pauses the ranks, if any run, or resumes them.
func (a *attempt) setPaused(pause bool) {
	switch {
	case a == nil:
	case pause:
		a.pause()
	default:
		a.resume()
	}
}

// state describes the ranks, for SIGQUIT.
func (a *attempt) state(now time.Time) string {
	pids := a.group.PIDs()
	a.mu.Lock()
	ended := len(a.ended)
	a.mu.Unlock()
	text := fmt.Sprintf("attempt %d has run for %s, %d of %d ranks have ended", a.n, now.Sub(a.began).Round(time.Second),
		ended, a.local)
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
		text += fmt.Sprintf("; rank %d: pid %d, %s", k, pids[k], last)
	}
	return text
}

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
		a.facts <- strategy.Fact{Time: time.Now(), Rank: -1, Source: "gpurun",
			Content: strategy.Gap(fmt.Sprintf("a rank's log is not complete: %v", err))}
	}
	a.programs.Stop()
	a.stopProbe()
	a.stopSampling()
	a.snapshots()
	a.saving.stop()
	a.stopAlarms()
	a.compareEnvironments()
	if err := a.swap.close(); err != nil {
		a.facts <- strategy.Fact{Time: time.Now(), Rank: -1, Source: "gpurun",
			Content: strategy.Gap(fmt.Sprintf("remove the files offloaded to NVMe: %v", err))}
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
		a.node.log.Note(fmt.Sprintf("the ranks have ended and left processes behind, which have %s to finish",
			a.node.opts.Grace))
	})
	a.group.Linger(a.patience())
	told.Stop()
	if blind := a.programs.Leave(); len(blind) > 0 {
		a.node.log.Note(fmt.Sprintf("warning: left in the background, where gpurun cannot follow it: %s",
			strings.Join(blind, ", ")))
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
		a.facts <- strategy.Fact{Time: time.Now(), Rank: -1, Source: "gpurun",
			Content: &strategy.Stuck{PID: p.PID, Channel: p.Channel}}
	}
}
