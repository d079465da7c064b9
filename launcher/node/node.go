// Package node runs one node's ranks from start to sweep: it joins packages ranks
// and hook into what package launcher consumes.
//
//	node.go         Starter: the ranks of one attempt, or none
//	attempt.go      Attempt: the running ranks, up to the last byte of output
//	world.go        World: devices, memory, disks, checkpoints
//	signals.go      the signals that gpurun receives
//	eventlog.go     the journal for several goroutines
//	options.go      what a node needs of the job
package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/hook"
	"github.com/gpurun/gpurun/launcher/ranks"

	"github.com/gpurun/gpurun/strategy"
)

// startBound bounds the start of the ranks, which takes milliseconds unless a file system hangs.
const startBound = time.Minute

// A Node is the launcher's Starter: it starts the ranks of this machine.
type Node struct {
	opts    Options
	token   string // makes the marker of this process's ranks unique
	log     *EventLog
	signals *Signals
	ports   map[int]bool    // ports that earlier attempts of this run used
	checked bool            // the devices were tried before the first attempt
	probe   *hook.Installed // the latest, nil for none
}

// New makes a node. It passes its running ranks to signals, and writes notices to log.
func New(o Options, log *EventLog, signals *Signals) *Node {
	if o.Early == 0 {
		o.Early = earlyBound
	}
	if o.Plain {
		o.Ranks = 1
	}
	if o.Alarms == nil {
		o.Alarms = func(context.Context, func(strategy.Fact)) func() { return func() {} }
	}
	if o.Output.Screen != nil {
		signals.shows(o.Output.Screen)
	}
	return &Node{opts: o, token: rand.Text(), log: log, signals: signals, ports: map[int]bool{}}
}

// Start starts all ranks of one attempt. An error has a hint and an exit code: 75 if waiting helps, 74 if the
// system refuses the attempt's folder, 2 if the job requests something that it cannot have. The error is a
// *launcher.Signal if a signal stopped gpurun meanwhile.
func (n *Node) Start(ctx context.Context, l launcher.Launch) (launcher.Attempt, error) {
	unfit, err := n.preflight(ctx)
	switch {
	case err != nil:
		return nil, err
	case len(unfit) > 0:
		return ground(unfit), nil
	}
	a, err := n.open(ctx, l)
	if err != nil {
		return nil, cannotStart(err)
	}
	guards := n.opts.Guards.Unused() // they initialise while the hook's files are written
	processes := n.ranks(a, l)
	a.saving = newSavingWatch(n.opts.Growing, a.emit)
	a.stopProbe, a.lookAtProbe = hook.Watch(l.Dir, a.ranks(), withOutside(n.opts.Used, a.measured.tap(a.repeats(a.saving.see))), a.stepped)
	a.programs = n.openPrograms(a, l)
	a.stopAlarms = n.opts.Alarms(context.WithoutCancel(ctx), a.alarm)
	// A signal that comes while ranks start stops them with their grace, like a later one, since the first
	// ranks may already work.
	starting, started := context.WithTimeout(context.WithoutCancel(ctx), startBound)
	defer started()
	n.signals.begin(n.opts.Grace)
	a.ends = a.openEnds()
	a.group, err = guards.Start(starting, processes, ranks.StartOptions{
		Marker: fmt.Sprintf("%s.%s.%d", n.opts.Run, n.token, l.N), DataLimit: n.opts.DataLimit, Ends: a.ends, Warn: func(text string) { n.log.Note("warning: " + text) },
	})
	a.out.Started()
	if err != nil {
		n.signals.leave()
		return nil, cannotStart(a.abandon(ctx, err))
	}
	a.programs.Follow(a.group.PIDs()[a.meeting.Offset])
	n.signals.adopt(a)
	a.asked = l.Command.Env
	a.startSampling()
	go a.collect()
	return a, nil
}

// open makes an attempt with everything that its ranks need, but starts no rank.
func (n *Node) open(ctx context.Context, l launcher.Launch) (*attempt, error) {
	a := &attempt{node: n, n: l.N, meeting: l.Meeting, began: time.Now(), facts: make(chan strategy.Fact, 64), dir: l.Dir, local: n.opts.Ranks, ended: map[int]bool{}, well: map[int]bool{}, steps: map[int]hook.OptimizerStep{}, reported: map[int]time.Time{}, again: map[int][]strategy.InPlace{}}
	var err error
	if a.swap, err = n.openSwap(l); err != nil {
		return nil, err
	}
	if a.out, err = n.openOutput(a); err != nil {
		err = fmt.Errorf("open the ranks' output: %w", err)
		if !isShort(err) {
			err = launcher.RunDirError(l.Dir, err)
		}
		return nil, errors.Join(err, a.swap.close())
	}
	a.counters = ranks.ThisMachine().OpenCounters()
	a.lingering, a.linger = context.WithCancel(context.WithoutCancel(ctx))
	return a, nil
}

// abandon releases the resources of an attempt whose ranks could not be started.
func (a *attempt) abandon(ctx context.Context, err error) error {
	a.linger()
	a.closeEnds()
	var draining sync.WaitGroup
	draining.Go(func() { drain(a.facts) })
	a.programs.Stop()
	a.stopProbe()
	a.saving.stop()
	a.stopAlarms()
	err = errors.Join(err, a.out.Wait(ctx), a.swap.close())
	close(a.facts)
	draining.Wait()
	return err
}

func drain(facts <-chan strategy.Fact) {
	for range facts {
	}
}
