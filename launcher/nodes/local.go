package nodes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/model"
	"github.com/gpurun/gpurun/strategy"
)

const sigterm = int(syscall.SIGTERM)

// settleBound is how long device memory of the attempt before may take to come back, and
// seenBound how long a checkpoint to be seen here that another node has written: caches of
// network file systems are some seconds old.
const (
	settleBound = 60 * time.Second
	seenBound   = 60 * time.Second
)

// A local is an attempt's part on a follower's own machine. Its methods are called by the
// follower's owner, but prepare and run, which are goroutines of their own.
type local struct {
	f      *follower
	here   *Here // nil where there is none
	unable error // why not
	order  Prepare
	rundir string
	ctx    context.Context
	cancel context.CancelCauseFunc

	// What prepare leaves for run.
	command model.Command
	dir     string

	mu      sync.Mutex
	step    step
	stopped bool
	killed  bool             // without any grace
	running launcher.Attempt // nil before the ranks run
	stops   sync.WaitGroup
}

// A step is how far a local is.
type step int

const (
	preparing step = iota
	prepared
	starting
	running
	over // nothing is left to stop
)

func newLocal(f *follower, order Prepare) *local {
	l := &local{f: f, here: f.here, unable: f.unable, order: order, rundir: f.welcome.Dir}
	l.ctx, l.cancel = context.WithCancelCause(f.done)
	return l
}

// errStopped is why an attempt's preparation was cut short.
var errStopped = errors.New("the head stopped the attempt")

// prepare does all that comes before the ranks' start, and says so.
func (l *local) prepare() {
	facts, err := l.ready()
	switch {
	case !l.advance(prepared):
		l.f.over(l, Stopped{})
	case err != nil:
		l.f.over(l, notReady(err))
	default:
		l.f.say(Ready{Facts: facts})
	}
}

// advance goes to the next step, unless the attempt was stopped.
func (l *local) advance(to step) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.stopped {
		l.step = to
	}
	return !l.stopped
}

func notReady(err error) NotReady {
	return NotReady{Why: err.Error(), Hint: errext.Hint(err), Code: errext.Code(err, strategy.CodeFailed)}
}

func (l *local) ready() ([]strategy.Fact, error) {
	here := l.here
	if here == nil {
		return nil, l.unable
	}
	if l.order.Reach {
		if err := reach(l.ctx, l.order.Addr, l.order.Port); err != nil {
			return nil, err
		}
	}
	if err := l.seen(l.order.Checkpoint); err != nil {
		return nil, err
	}
	facts := here.World.Settle(l.ctx, settleBound)
	dir, err := here.Store.Prepare(l.order.Attempt)
	if err != nil {
		return nil, launcher.RunDirError(l.rundir, err)
	}
	command, err := here.Recipe.Apply(l.order.Plan, l.order.Checkpoint, dir)
	if err != nil {
		return nil, fmt.Errorf("apply the plan: %w", err)
	}
	if launcher.Digest(command, dir) != l.order.Digest {
		return nil, errext.WithCode(errext.Errorf("the job's files and packages have to be the same on all nodes",
			"it would start another command for the same plan than node 0"), strategy.CodeUsage)
	}
	l.command, l.dir = command, dir
	return facts, launcher.RunDirError(l.rundir, here.Store.Write(dir, l.order.Plan, command))
}

// seen waits until a checkpoint is seen here.
func (l *local) seen(path string) error {
	if path == "" {
		return nil
	}
	over := time.NewTimer(seenBound)
	defer over.Stop()
	for {
		_, err := os.Stat(path)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(time.Second):
		case <-l.ctx.Done():
			return context.Cause(l.ctx)
		case <-over.C:
			return errext.WithCode(errext.Errorf("write checkpoints to a file system that all nodes share",
				"the checkpoint that the ranks would start from cannot be seen on this node: %w", err), strategy.CodeUsage)
		}
	}
}

// start starts the ranks, and passes on what is seen of them.
func (l *local) start() {
	if !l.advance(starting) {
		return
	}
	o := l.order
	launch := launcher.Launch{
		N: o.Attempt, Dir: l.dir, Command: l.command, Plan: o.Plan, Checkpoint: o.Checkpoint, Confirm: o.Confirm, Closely: o.Closely,
		Meeting: launcher.Meeting{Node: l.f.opts.Hello.Node, Nodes: o.Nodes, Offset: o.Offset, World: o.World, Addr: o.Addr, Port: o.Port},
	}
	l.f.owner.Go(func() { l.run(launch) })
}

// run runs the ranks to their end.
func (l *local) run(launch launcher.Launch) {
	ranks, err := l.here.Starter.Start(l.ctx, launch)
	if err != nil {
		l.f.over(l, notReady(err))
		return
	}
	l.mu.Lock()
	l.running, l.step = ranks, running
	switch { // meanwhile
	case l.killed:
		l.stops.Go(func() { ranks.Stop(int(syscall.SIGKILL), 0) })
	case l.stopped:
		l.stops.Go(func() { ranks.Stop(sigterm, l.f.opts.Grace) })
	}
	l.mu.Unlock()
	l.f.say(Started{})
	for f := range ranks.Facts() {
		l.f.say(Event{Fact: l.placed(f)})
	}
	l.mu.Lock()
	l.step = over
	l.mu.Unlock()
	l.stops.Wait()
	l.f.over(l, Stopped{Inventory: l.here.World.Inventory(l.ctx)})
}

// placed names the files of a fact as they are found from the attempt's folder.
func (l *local) placed(f strategy.Fact) strategy.Fact {
	if f.Snapshot != nil && f.Snapshot.File != "" {
		s := *f.Snapshot
		s.File = filepath.Join(filepath.Base(l.dir), s.File)
		f.Snapshot = &s
	}
	return f
}

// stop ends the ranks, or what comes before them. It does not wait.
func (l *local) stop(signal int, grace time.Duration) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	first := !l.stopped
	l.stopped, l.killed = true, l.killed || signal == int(syscall.SIGKILL)
	switch {
	case l.step == running:
		ranks := l.running
		l.stops.Go(func() { ranks.Stop(signal, grace) })
	case l.step == prepared && first:
		l.f.owner.Go(func() { l.f.over(l, Stopped{}) })
	}
	l.cancel(errStopped)
}

func (l *local) stopPeers(s Stop) {
	if a := l.attempt(); a != nil {
		a.StopPeers(s.Signal, s.Spare)
	}
}

func (l *local) release() {
	if a := l.attempt(); a != nil {
		a.Release()
	}
}

func (l *local) stacks() {
	if a := l.attempt(); a != nil {
		l.f.owner.Go(a.Stacks)
	}
}

// attempt is the running ranks, nil without any.
func (l *local) attempt() launcher.Attempt {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running
}

// alive says how far the ranks are.
func (l *local) alive() Alive {
	a := l.attempt()
	if a == nil {
		return Alive{}
	}
	m := Alive{Signs: map[int]strategy.Sign{}, Progress: a.Progress(), Samples: l.f.opts.Seen.digest(l.order.Attempt)}
	for k := range l.f.opts.Hello.Ranks {
		m.Signs[l.order.Offset+k] = a.LastSign(l.order.Offset + k)
	}
	return m
}
