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

// settleBound bounds the wait until the previous attempt's device memory is free. checkpointBound bounds the
// wait for a checkpoint that another node has written, since network file systems cache for some seconds.
const (
	settleBound     = 60 * time.Second
	checkpointBound = 60 * time.Second
)

// A localAttempt is an attempt's part on a follower's machine. The follower's goroutine owns its
// fields; prepare and run are separate goroutines, one after the other.
type localAttempt struct {
	f         *follower
	resources *Resources // nil if begin failed
	unable    error      // why begin failed
	order     Prepare
	rundir    string
	ctx       context.Context // done once the attempt is stopped
	cancel    context.CancelCauseFunc
	launch    launcher.Launch // prepare makes it for run

	waits  bool             // prepared, and nothing runs yet
	killed bool             // stopped without grace
	ranks  launcher.Attempt // nil except while they run
	stops  sync.WaitGroup
}

func newLocal(f *follower, order Prepare) *localAttempt {
	l := &localAttempt{f: f, resources: f.resources, unable: f.unable, order: order, rundir: f.welcome.Dir}
	l.ctx, l.cancel = context.WithCancelCause(f.done)
	return l
}

// errStopped: node 0 stopped the attempt's preparation.
var errStopped = errors.New("node 0 stopped the attempt")

// prepare does everything that precedes the ranks' start, and reports the result.
func (l *localAttempt) prepare() {
	facts, err := l.ready()
	l.f.own(func() {
		switch {
		case l.ctx.Err() != nil:
			l.f.over(l, Stopped{})
		case err != nil:
			l.f.over(l, notReady(err))
		default:
			l.waits = true
			l.f.machine.Report(l.f.now(), Ready{Facts: facts})
		}
	})
}

func notReady(err error) NotReady {
	return NotReady{Why: err.Error(), Hint: errext.Hint(err), Code: errext.Code(err, strategy.CodeFailed)}
}

func (l *localAttempt) ready() ([]strategy.Fact, error) {
	resources := l.resources
	if resources == nil {
		return nil, l.unable
	}
	launch := l.order.Launch
	if l.order.Reach {
		if err := reach(l.ctx, launch.Meeting.Addr, launch.Meeting.Port); err != nil {
			return nil, err
		}
	}
	if err := l.awaitCheckpoint(launch.Checkpoint); err != nil {
		return nil, err
	}
	facts := resources.World.Settle(l.ctx, settleBound)
	dir, err := resources.Store.Prepare(launch.N)
	if err != nil {
		return nil, launcher.RunDirError(l.rundir, err)
	}
	command, err := resources.Recipe.Apply(launch.Plan, launch.Arguments, launch.Checkpoint, dir)
	if err != nil {
		return nil, fmt.Errorf("apply the plan: %w", err)
	}
	if launcher.Digest(command, dir) != l.order.Digest {
		return nil, errext.WithCode(errext.Errorf("the job's files and packages have to be the same on all nodes",
			"for the same plan it would start another command than node 0"), strategy.CodeUsage)
	}
	launch.Command, launch.Dir = command, dir
	l.launch = launch
	return facts, launcher.RunDirError(l.rundir, resources.Store.Write(dir, launch.Plan, command))
}

// awaitCheckpoint waits until a checkpoint appears on this node.
func (l *localAttempt) awaitCheckpoint(path string) error {
	if path == "" {
		return nil
	}
	over := time.NewTimer(checkpointBound)
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

// run runs the ranks to their end, and reports their facts.
func (l *localAttempt) run() {
	ranks, err := l.resources.Starter.Start(l.ctx, l.launch)
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
		l.f.machine.Report(l.f.now(), Started{})
	})
	for f := range ranks.Facts() {
		if of := strategy.As[*strategy.Snapshot](f); of != nil && of.File != "" { // relative to the attempt's folder
			s := *of
			s.File = filepath.Join(filepath.Base(l.launch.Dir), s.File)
			f.Content = &s
		}
		l.f.report(Event{Fact: f})
	}
	l.f.own(func() { l.ranks = nil }) // nothing is left to stop
	l.stops.Wait()
	inventory := l.resources.World.Inventory(l.ctx)
	l.f.own(func() { l.f.over(l, Stopped{Inventory: inventory}) })
}

// stop stops the ranks, or their preparation. It does not wait.
func (l *localAttempt) stop(signal int, grace time.Duration) {
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

// running returns the running ranks, nil if none run.
func (l *localAttempt) running() launcher.Attempt {
	if l == nil {
		return nil
	}
	return l.ranks
}

// alive returns the state of the ranks.
func (l *localAttempt) alive() Alive {
	ranks := l.running()
	if ranks == nil {
		return Alive{}
	}
	m := Alive{Signs: map[int]strategy.Sign{}, Progress: ranks.Progress(), Samples: l.f.opts.Samples.digest(l.launch.N)}
	for k := range l.f.opts.Hello.Ranks {
		rank := l.launch.Meeting.Offset + k
		m.Signs[rank] = ranks.LastSign(rank)
	}
	return m
}
