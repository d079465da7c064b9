package node

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/host"
	"github.com/gpurun/gpurun/launcher/output"
	"github.com/gpurun/gpurun/launcher/probe"
	"github.com/gpurun/gpurun/launcher/proc"
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
	group    *proc.Group
	out      *output.Output
	counters *host.Counters
	facts    chan strategy.Fact
	probe    *probe.Installed // nil where the ranks do without
	measured measured         // by the ranks' processes
	// stopProbe ends the watch over what ranks tell of their own end, and lookAtProbe passes
	// on what they have by now.
	stopProbe, lookAtProbe func()
	// programs follows the Python programs below a shell, nil where the rank is none.
	programs *probe.Programs
	// saving looks for checkpoints that grow once a rank has told why it ends.
	saving *savingWatch
	// stopAlarms ends the watch over the devices' alarms.
	stopAlarms func()
	// stopSettings ends the watch over the files in which a framework writes what it
	// uses, after a last look.
	stopSettings func()
	// stopSampling ends the looks at the ranks, after a last one.
	stopSampling func()
	swap         *swap    // nil where nothing is offloaded to NVMe
	ends         *os.File // nil where it cannot be had
	// lingering is cancelled by linger, when what ranks left behind gets no more
	// time to finish.
	lingering context.Context
	linger    context.CancelFunc
	// patient is the context of patience, for the goroutine of collect alone.
	patient      context.Context
	lostPatience context.CancelFunc

	mu     sync.Mutex         // guards what follows
	ended  map[int]bool       // ranks
	well   map[int]bool       // those of them that ended with 0
	told   map[int]probe.Step // by rank, the latest of its process
	paused bool               // the ranks are stopped, until SIGCONT
	awake  time.Time          // when they last went on after a pause
}

// Facts delivers what is observed; collect closes it.
func (a *attempt) Facts() <-chan strategy.Fact { return a.facts }

func (a *attempt) emit(f strategy.Fact) { a.facts <- f }

// alarm passes on what is known of the devices, and tells people what others hold there,
// and which are broken.
func (a *attempt) alarm(f strategy.Fact) {
	if e := f.DriverEvent; e != nil && e.Kind == cause.UnfitEvent {
		a.node.log.Note("warning: " + e.Text())
	}
	if f.Tenant != nil {
		a.node.log.Note(tenancy(f.Tenant))
	}
	a.emit(f)
}

// ranks are the global ranks on this machine.
func (a *attempt) ranks() []int {
	var ranks []int
	for k := range a.local {
		ranks = append(ranks, a.meeting.Offset+k)
	}
	return ranks
}

// Stop ends the ranks and all that they started. What cannot be ended is told by
// collect.
func (a *attempt) Stop(signal int, grace time.Duration) {
	if signal == int(syscall.SIGKILL) {
		a.kill() // also what has grace left
	}
	a.linger()
	a.group.Stop(grace, syscall.Signal(signal))
}

// StopPeers sends a signal to all ranks but those given.
func (a *attempt) StopPeers(signal int, of []int) { a.group.StopPeers(syscall.Signal(signal), of) }

// Release lets the ranks go on that wait before their first optimizer step. Where that
// cannot be told to them they end by themselves, and say why.
func (a *attempt) Release() {
	if a.probe == nil {
		return
	}
	if err := a.probe.Go(); err != nil {
		a.node.log.Note(fmt.Sprintf("warning: the ranks cannot be told to go on: %v", err))
	}
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
	a.mu.Lock()
	defer a.mu.Unlock()
	sign := strategy.Sign{Output: own.Output, Step: own.Step, Others: all.Step, Longest: strategy.Seconds(all.Longest), Steps: all.Steps, Anyone: all.Output, Awake: a.awake}
	switch {
	case a.paused:
		sign.Output, sign.Awake = time.Now(), time.Now()
	case a.awake.After(sign.Output):
		sign.Output = a.awake
	}
	return sign
}

// Progress says how far each rank has come.
func (a *attempt) Progress() []strategy.Fact { return a.out.Progress() }

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

// heed pauses the ranks, if any run, or lets them go on.
func (a *attempt) heed(pause bool) {
	switch {
	case a == nil:
	case pause:
		a.pause()
	default:
		a.resume()
	}
}

// state says what the ranks do, for SIGQUIT.
func (a *attempt) state(now time.Time) string {
	pids := a.group.PIDs()
	a.mu.Lock()
	ended := len(a.ended)
	a.mu.Unlock()
	said := fmt.Sprintf("attempt %d has run for %s, %d of %d ranks have ended", a.n, now.Sub(a.began).Round(time.Second), ended, a.local)
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
