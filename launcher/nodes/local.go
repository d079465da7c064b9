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

// A local is an attempt's part on a follower's own machine. What it has belongs to the
// follower's owner; prepare and run are goroutines of their own, one after the other.
type local struct {
	f      *follower
	here   *Here // nil where there is none
	unable error // why not
	order  Prepare
	rundir string
	ctx    context.Context // over once the attempt is stopped
	cancel context.CancelCauseFunc
	launch launcher.Launch // which prepare leaves for run

	waits  bool             // it is prepared, and nothing runs
	killed bool             // without any grace
	ranks  launcher.Attempt // nil before they run, and after it
	stops  sync.WaitGroup
}

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
	l.f.own(func() {
		switch {
		case l.ctx.Err() != nil:
			l.f.over(l, Stopped{})
		case err != nil:
			l.f.over(l, notReady(err))
		default:
			l.waits = true
			l.f.machine.Say(l.f.now(), Ready{Facts: facts})
		}
	})
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
		if err := reach(l.ctx, l.order.Launch.Meeting.Addr, l.order.Launch.Meeting.Port); err != nil {
			return nil, err
		}
	}
	launch := l.order.Launch
	if err := l.seen(launch.Checkpoint); err != nil {
		return nil, err
	}
	facts := here.World.Settle(l.ctx, settleBound)
	dir, err := here.Store.Prepare(launch.N)
	if err != nil {
		return nil, launcher.RunDirError(l.rundir, err)
	}
	command, err := here.Recipe.Apply(launch.Plan, launch.Checkpoint, dir)
	if err != nil {
		return nil, fmt.Errorf("apply the plan: %w", err)
	}
	if launcher.Digest(command, dir) != l.order.Digest {
		return nil, errext.WithCode(errext.Errorf("the job's files and packages have to be the same on all nodes",
			"it would start another command for the same plan than node 0"), strategy.CodeUsage)
	}
	launch.Command, launch.Dir = command, dir
	l.launch = launch
	return facts, launcher.RunDirError(l.rundir, here.Store.Write(dir, launch.Plan, command))
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

// run runs the ranks to their end, and passes on what is seen of them.
func (l *local) run() {
	ranks, err := l.here.Starter.Start(l.ctx, l.launch)
	if err != nil {
		l.f.own(func() { l.f.over(l, notReady(err)) })
		return
	}
	l.f.own(func() {
		l.ranks = ranks
		switch { // meanwhile
		case l.killed:
			l.stop(int(syscall.SIGKILL), 0)
		case l.ctx.Err() != nil:
			l.stop(sigterm, l.f.opts.Grace)
		}
		l.f.machine.Say(l.f.now(), Started{})
	})
	for f := range ranks.Facts() {
		l.f.say(Event{Fact: l.placed(f)})
	}
	l.f.own(func() { l.ranks = nil }) // who stops them now need not
	l.stops.Wait()
	inventory := l.here.World.Inventory(l.ctx)
	l.f.own(func() { l.f.over(l, Stopped{Inventory: inventory}) })
}

// placed names the files of a fact as they are found from the attempt's folder.
func (l *local) placed(f strategy.Fact) strategy.Fact {
	if f.Snapshot != nil && f.Snapshot.File != "" {
		s := *f.Snapshot
		s.File = filepath.Join(filepath.Base(l.launch.Dir), s.File)
		f.Snapshot = &s
	}
	return f
}

// stop ends the ranks, or what comes before them. It does not wait.
func (l *local) stop(signal int, grace time.Duration) {
	if l == nil {
		return
	}
	l.killed = l.killed || signal == int(syscall.SIGKILL)
	l.cancel(errStopped)
	switch ranks := l.ranks; {
	case ranks != nil:
		l.stops.Go(func() { ranks.Stop(signal, grace) })
	case l.waits:
		l.f.owner.Go(func() { l.f.own(func() { l.f.over(l, Stopped{}) }) })
	}
}

// running is the running ranks, nil without any.
func (l *local) running() launcher.Attempt {
	if l == nil {
		return nil
	}
	return l.ranks
}

// alive says how far the ranks are.
func (l *local) alive() Alive {
	ranks := l.running()
	if ranks == nil {
		return Alive{}
	}
	m := Alive{Signs: map[int]strategy.Sign{}, Progress: ranks.Progress(), Samples: l.f.opts.Seen.digest(l.launch.N)}
	for k := range l.f.opts.Hello.Ranks {
		rank := l.launch.Meeting.Offset + k
		m.Signs[rank] = ranks.LastSign(rank)
	}
	return m
}
