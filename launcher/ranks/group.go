package ranks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/strategy"
)

// member is one rank that was started.
type member struct {
	rank  int
	id    identity
	pidfd *os.File

	// Guarded by Group.mu.
	over    bool // its end was reported
	end     strategy.Fact
	before  bool // it ended before the stop began
	stopped bool // StopPeers has begun to stop it
}

// A Group is the ranks of one attempt on one node. Its methods may be called from any goroutine. Stop must be
// called in the end, even if all ranks have ended by themselves: it ends processes that they left behind, and
// releases the guard.
type Group struct {
	options StartOptions
	exits   chan strategy.Fact // has room for all
	began   uint64             // start time of the attempt, in ticks
	answers chan message       // the guard's answers to spawn; at most one is awaited
	quiet   chan struct{}      // closed when all ranks have ended
	cut     chan struct{}      // closed by Kill
	running sync.WaitGroup
	release func() // of the reaper

	cutOnce  sync.Once
	stopOnce sync.Once
	report   StopReport

	mu       sync.Mutex // guards what follows, and the members' state
	members  []*member
	next     int  // the rank that the guard was last ordered to start
	started  bool // no more ranks will come
	reported int  // number of ends
	stopping bool
	guard    *guardHandle // the active guard
	outer    *guardHandle // the guard above it, its successor; nil once it has taken over
	asked    bool         // a rank was signalled before its end
	lost     bool         // no guard is above the ranks: they are gpurun's own children
	promoted bool         // the outer guard is the active one
	losses   int
	released bool // the guard's end is expected
	closed   bool // exits is closed
}

// Start starts all ranks or none: if one cannot be started, it kills the others, and the error names that
// rank and the reason. ctx bounds only the start.
//
// The program must call MaybeGuard first.
func Start(ctx context.Context, ranks []Rank, o StartOptions) (*Group, error) {
	if len(ranks) == 0 {
		return nil, errors.New("start ranks: there are none")
	}
	return LaunchGuards().Start(ctx, ranks, o)
}

// Start is like the function, with guards that run already. There must be a rank.
func (s *Guards) Start(ctx context.Context, ranks []Rank, o StartOptions) (*Group, error) {
	if o.Warn == nil {
		o.Warn = func(string) {}
	}
	if o.KillTimeout <= 0 {
		o.KillTimeout = 30 * time.Second
	}
	if err := s.await(ctx); err != nil {
		return nil, fmt.Errorf("start ranks: %w", err)
	}
	outer, k := s.outer, s.inner
	g := &Group{
		options: o,
		exits:   make(chan strategy.Fact, len(ranks)),
		began:   outer.id.Start,
		answers: make(chan message, 1),
		quiet:   make(chan struct{}),
		cut:     make(chan struct{}),
		release: s.release,
		guard:   k,
		outer:   outer,
	}
	g.running.Go(func() { g.listen(k) })
	g.running.Go(func() { g.awaitOuter(outer) })
	// An error need not be handled: awaitOuter notices an outer guard that has died.
	_ = outer.link.send(message{Kind: watchGuard, Run: o.Marker, Began: g.began})
	if err := g.startAll(ctx, k.link, ranks); err != nil {
		g.Kill()
		if report := g.Stop(0); len(report.Leftover) > 0 {
			err = fmt.Errorf("%w (process %d could not be killed)", err, report.Leftover[0].PID)
		}
		return nil, err
	}
	return g, nil
}

func (g *Group) warn(format string, args ...any) { g.options.Warn(fmt.Sprintf(format, args...)) }

func (g *Group) warnReplaced() {
	g.warn("the guard process died and was replaced by process %d", g.guard.id.PID)
}

// startAll has the first guard start the ranks. If the guard dies meanwhile, the start fails.
func (g *Group) startAll(ctx context.Context, l *guardLink, ranks []Rank) error {
	stop := context.AfterFunc(ctx, l.giveUp)
	defer stop()
	if err := l.send(message{Kind: watchGuard, Run: g.options.Marker, Began: g.began},
		g.options.endsFile()...); err != nil {
		return fmt.Errorf("start ranks: send to the guard: %w", err)
	}
	workdir, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("start ranks: %w", err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("start ranks: %w", err)
	}
	defer null.Close()
	for _, r := range ranks {
		if err := g.startOne(ctx, l, r, workdir, null); err != nil {
			return fmt.Errorf("start rank %d: %w", r.Rank, err)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.started = true
	g.closeIfDone()
	return nil
}

func (g *Group) startOne(ctx context.Context, l *guardLink, r Rank, workdir string, null *os.File) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	m, err := spawnMessage(r, g.options, workdir)
	if err != nil {
		return err
	}
	g.mu.Lock()
	g.next = r.Rank
	g.mu.Unlock()
	files := r.stdio(null)
	defer runtime.KeepAlive(files)
	// Fd makes a pipe blocking, as a program expects of its standard files.
	if err := l.send(m, int(files[0].Fd()), int(files[1].Fd()), int(files[2].Fd())); err != nil {
		return fmt.Errorf("send to the guard: %w", cmp.Or(context.Cause(ctx), err))
	}
	var a message
	select {
	case a = <-g.answers:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	switch {
	case a.Kind != started:
		return errors.New("the guard died")
	case a.Errno != 0 && a.Call == "exec":
		return &os.PathError{Op: "exec", Path: string(m.Path), Err: syscall.Errno(a.Errno)}
	case a.Errno != 0:
		return os.NewSyscallError(a.Call, syscall.Errno(a.Errno))
	}
	return nil
}

// listen receives messages from the guard, and replaces it when it dies.
func (g *Group) listen(first *guardHandle) {
	k := first
	for k != nil {
		m, fds, err := k.link.receive()
		if err == nil {
			g.handle(m, fds)
			continue
		}
		k.cleanUp()
		k = g.replace()
	}
}

// handle takes in one message of the guard.
func (g *Group) handle(m message, fds []int) {
	switch m.Kind {
	case started:
		if m.Errno == 0 && len(fds) == 1 {
			if err := g.addMember(m.PID, fds[0]); err != nil {
				m.Call, m.Errno = "pidfd", int(syscall.EBADF)
			}
		}
		g.answers <- m
	case watching:
		g.mu.Lock()
		defer g.mu.Unlock()
		if (g.lost || g.promoted) && g.guard != nil {
			g.warnReplaced()
		}
	case exited:
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, r := range g.members {
			if r.id.PID == m.PID {
				g.sendExit(r, m.End)
			}
		}
	}
}

// addMember makes a member of a rank that has just started. It owns pidfd.
func (g *Group) addMember(pid, pidfd int) error {
	p, err := readProcess(pid)
	if err != nil {
		unix.Close(pidfd)
		return err
	}
	f, err := pidfdFile(pidfd)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	r := &member{rank: g.next, id: p.identity, pidfd: f}
	g.members = append(g.members, r)
	g.running.Go(func() { g.wakeGuards(r) })
	return nil
}

// wakeGuards resumes suspended guards, which do not report a rank's end.
func (g *Group) wakeGuards(r *member) {
	if err := awaitExit(r.pidfd); err != nil {
		return // Stop does not wait for this rank any more
	}
	late := time.NewTimer(releaseTimeout)
	defer late.Stop()
	select {
	case <-g.quiet:
		return
	case <-late.C:
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.over {
		return
	}
	for _, k := range g.guards() {
		_ = signalProcess(k.pidfd, unix.SIGCONT) // no error: it has died meanwhile
	}
}

// sendExit sends the fact of a rank's end, once. The caller holds mu.
func (g *Group) sendExit(r *member, e processEnd) {
	if r.over || g.closed {
		return
	}
	r.over = true
	g.reported++
	f := e.fact(r.rank, r.id.PID)
	f.Exit().Stopped = (g.stopping || r.stopped) && !r.before
	r.end = f
	g.exits <- f
	g.closeIfDone()
}

// closeIfDone closes exits after the last end. The caller holds mu.
func (g *Group) closeIfDone() {
	if g.started && !g.closed && g.reported == len(g.members) {
		g.closed = true
		close(g.exits)
		close(g.quiet)
	}
}

// awaitOuter waits for the end of the outer guard, and only warns: the inner guard is active, and still above
// the ranks.
func (g *Group) awaitOuter(outer *guardHandle) {
	<-outer.gone
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.outer != outer || g.released {
		return
	}
	g.outer = nil
	outer.cleanUp()
	if g.guard != nil {
		g.warnReplaced()
	}
}

// replace finds another guard after the active one has died; nil if none is needed or available. An outer
// guard takes over: it was above the ranks all the time. Without one, this process is the next subreaper
// above them: the ranks are now its own children, and it waits for them itself.
func (g *Group) replace() *guardHandle {
	if k, ok := g.promote(); ok {
		return k
	}
	ids, wanted := g.takeOver()
	if !wanted {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), helloTimeout)
	defer cancel()
	k, err := startGuard(ctx)
	if err != nil {
		g.warn("the guard process died and cannot be replaced: if gpurun is killed now, its ranks continue: %v", err)
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.released {
		k.cleanUp()
		return nil
	}
	g.guard = k
	// If this fails, the new guard has died too, and listen calls replace again.
	_ = k.link.send(message{Kind: watchGuard, Run: g.options.Marker, Began: g.began, Ranks: ids})
	return k
}

// promote makes the outer guard the active one, if there is one. The ranks are its children then.
func (g *Group) promote() (*guardHandle, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	k := g.outer
	if k == nil || g.released {
		return nil, false
	}
	g.failStart()
	g.guard, g.outer, g.promoted = k, nil, true
	_ = k.link.send(message{Kind: watchGuard, Run: g.options.Marker, Began: g.began, Ranks: g.identities(),
		Asked: g.asked}, g.options.endsFile()...)
	return k, true
}

// failStart fails a Start that waits for a guard which has died. The caller holds mu.
func (g *Group) failStart() {
	select {
	case g.answers <- message{}:
	default:
	}
}

// takeOver takes over the ranks of a guard that has died, and returns them. It reports false if no other
// guard is needed.
func (g *Group) takeOver() ([]identity, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.guard = nil
	if g.released {
		return nil, false
	}
	g.failStart()
	for _, r := range g.members {
		if !r.over && !g.lost {
			g.running.Go(func() { g.awaitRank(r) })
		}
	}
	g.lost = true
	if g.losses++; g.losses > maxLosses {
		g.warn("the guard process died %d times and is not replaced any more: if gpurun is killed now, its ranks continue",
			g.losses)
		return nil, false
	}
	return g.identities(), true
}

// identities returns the members' processes. The caller holds mu.
func (g *Group) identities() []identity {
	ids := make([]identity, 0, len(g.members))
	for _, r := range g.members {
		ids = append(ids, r.id)
	}
	return ids
}

// awaitRank waits for the end of a rank that has become this process's own child.
func (g *Group) awaitRank(r *member) {
	if err := awaitExit(r.pidfd); err != nil {
		return // Stop has given the rank up
	}
	e, over, err := peek(r.id.PID)
	if err != nil || !over {
		g.warn("rank %d ended, and its exit status cannot be read: %v", r.rank, err)
		e = processEnd{At: time.Now(), Code: 255}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sendExit(r, e)
}

// Exits returns the channel of the ranks' ends: one fact with an Exit for each, as it happens. It is closed
// after the last, or when Stop stops waiting for ranks that do not die. It is buffered for all facts, so that
// it needs no reader.
func (g *Group) Exits() <-chan strategy.Fact { return g.exits }

// PIDs returns the pid of each rank, even after its end.
func (g *Group) PIDs() map[int]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	pids := make(map[int]int, len(g.members))
	for _, r := range g.members {
		pids[r.rank] = r.id.PID
	}
	return pids
}

// memberList returns the members so far.
func (g *Group) memberList() []*member {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.members)
}
