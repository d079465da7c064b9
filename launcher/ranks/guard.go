package ranks

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// guardName begins the guard's argv[0] and its name in ps, so that neither pkill gpurun nor pkill -f
	// gpurun ends it.
	guardName = "grd-"
	// guardVariable has the supervisor's pid and start time, and marks an outer guard.
	guardVariable = "GRD_LINK"
	// guardSocket is the first descriptor after stdin, stdout and stderr, innerSocket the descriptor that an
	// outer guard passes on.
	guardSocket = 3
	innerSocket = 4
	// guardBound is how long a guard continues to kill after its supervisor's death.
	guardBound = time.Minute
	// trackInterval is how often a guard that took over running ranks looks for processes that they started:
	// see the package comment.
	trackInterval = 250 * time.Millisecond
)

// MaybeGuard turns this process into a guard, and never returns, if Start started it as one. It must be the
// first call in main, and in TestMain of a package whose tests call Start.
func MaybeGuard() {
	if len(os.Args) == 0 || !strings.HasPrefix(os.Args[0], guardName) {
		return
	}
	value, ok := os.LookupEnv(guardVariable)
	if !ok {
		return
	}
	os.Unsetenv(guardVariable)
	if err := guardMain(value); err != nil {
		fmt.Fprintf(os.Stderr, "gpurun: error: guard process: %v\n", err)
		syscall.Exit(1)
	}
	// Nothing is left to write. os.Exit would take a second in a binary with the race detector.
	syscall.Exit(0)
}

// supervisorMessage is one message of the supervisor, with its descriptors.
type supervisorMessage struct {
	message
	fds []int
}

// A guard is the state of a guard process, which is between the supervisor and the ranks. One goroutine owns
// it.
type guard struct {
	link  *guardLink
	owner identity     // the supervisor
	ranks map[int]bool // pid → whether its end was reported
	began uint64
	// ends is Options.Ends, nil for none. order has the ranks' pids. asked: a rank may have been signalled
	// before its end.
	ends  *os.File
	order []int
	asked bool
	// For an outer guard: the guard below it, and a channel that is closed at its end.
	inner     identity
	innerGone <-chan struct{}
	// For a guard that took over without having been above the ranks: the ranks, which are not its children;
	// all processes that it saw them start; and the marker that identifies the others.
	adopted []identity
	known   map[identity]bool
	marker  *marker
}

func guardMain(value string) error {
	var owner identity
	var role string
	if n, err := fmt.Sscan(value, &owner.PID, &owner.Start, &role); n < 2 {
		return fmt.Errorf("read %s: %w", guardVariable, err)
	}
	l, err := newLink(os.NewFile(guardSocket, "supervisor"))
	if err != nil {
		return fmt.Errorf("open socket: %w", err)
	}
	defer l.conn.Close()
	// Ranks inherit only stdin, stdout and stderr, as under torchrun (subprocess.Popen's close_fds).
	if err := unix.CloseRange(guardSocket, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil &&
		!errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("keep descriptors from the ranks: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become subreaper: %w", err)
	}
	// Any thread may name the process through this file; prctl names one thread. If /proc is read-only, the
	// process keeps its file's name.
	_ = os.WriteFile("/proc/self/comm", []byte(guardName+strconv.Itoa(owner.PID)), 0)
	g := &guard{link: l, owner: owner, ranks: make(map[int]bool), known: make(map[identity]bool)}
	if role != "" {
		if err := g.startInner(); err != nil {
			return fmt.Errorf("start the inner guard: %w", err)
		}
	}
	return g.run()
}

// startInner starts the guard that starts the ranks. This guard stays above it, idle until it dies.
func (g *guard) startInner() error {
	defer unix.Close(innerSocket) // else this side would not see its end
	cmd := guardCommand(g.owner, false)
	// Not os.StartProcess, which may start another child to test the kernel.
	pid, err := syscall.ForkExec(cmd.Path, cmd.Args, &syscall.ProcAttr{
		Env: cmd.Env, Files: []uintptr{0, 1, 2, innerSocket}, Sys: cmd.SysProcAttr,
	})
	if err != nil {
		return os.NewSyscallError("exec", err)
	}
	p, err := readProcess(pid) // valid: not reaped yet
	if err != nil {
		return err
	}
	gone := make(chan struct{})
	g.inner, g.innerGone = p.identity, gone
	go func() { // ends with the process at the latest
		defer close(gone)
		for errors.Is(waitFor(pid), unix.EINTR) {
		}
	}()
	return nil
}

// waitFor waits for the end of a child, and reaps it.
func waitFor(pid int) error {
	_, err := unix.Wait4(pid, nil, 0, nil)
	return err
}

// run serves the supervisor until it releases the guard, or dies.
func (g *guard) run() error {
	signals := catchSignals()
	died := make(chan os.Signal, 1)
	signal.Notify(died, unix.SIGCHLD)

	gone, err := g.watchOwner()
	if err != nil {
		return err
	}
	requests := make(chan supervisorMessage)
	go func() { // ends with the process
		defer close(requests)
		for {
			m, fds, err := g.link.receive()
			if err != nil {
				return
			}
			requests <- supervisorMessage{m, fds}
		}
	}()
	if err := g.link.send(message{Kind: hello, PID: os.Getpid()}); err != nil {
		return nil // the supervisor is gone, and nothing was started yet
	}
	var ticks <-chan time.Time // ticks once this guard has taken over
	for {
		select {
		case sig := <-signals:
			g.asked = g.asked || sig != unix.SIGTSTP
		case <-gone:
			g.drainRequests(requests)
			return g.endDescendants()
		case <-died:
			g.reapChildren()
		case <-ticks:
			g.track()
		case r, ok := <-requests:
			switch {
			case !ok:
				return g.endDescendants()
			case r.Kind == release:
				return g.shutDown(r.Ranks)
			case r.Kind == asked:
				g.asked = true
			case r.Kind == watchGuard:
				g.watch(r)
				if len(g.adopted) > 0 {
					ticks = time.Tick(trackInterval)
				}
			case r.Kind == spawn:
				g.spawn(r.message, r.fds)
			}
		}
	}
}

// catchSignals catches the signals that a scheduler sends to every process of a job step. It does not ignore
// them, since ignored signals would stay ignored in the ranks. SIGHUP stays ignored if it was, so that nohup
// works for the ranks too.
func catchSignals() <-chan os.Signal {
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, unix.SIGTERM, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGTSTP)
	if !signal.Ignored(unix.SIGHUP) {
		signal.Notify(caught, unix.SIGHUP)
	}
	return caught
}

// watchOwner returns a channel that is closed when the supervisor has ended. The end of the socket is
// not enough: a child that the supervisor is about to start holds a copy until it executes.
func (g *guard) watchOwner() (<-chan struct{}, error) {
	gone := make(chan struct{})
	fd, err := openProcess(g.owner)
	if err != nil {
		close(gone)
		return gone, nil
	}
	f, err := pidfdFile(fd)
	if err != nil {
		return nil, fmt.Errorf("watch supervisor: %w", err)
	}
	go func() { // ends with the process
		defer close(gone)
		defer f.Close()
		if err := awaitExit(f); err != nil {
			select {} // the poller cannot watch the pidfd: rely on the socket
		}
	}()
	return gone, nil
}

// watch takes in the attempt, and the ranks that run already. They are this guard's children if it is an
// outer guard whose inner guard has died.
func (g *guard) watch(m supervisorMessage) {
	g.began, g.asked = m.Began, g.asked || m.Asked
	if len(m.fds) > 0 {
		g.ends = os.NewFile(uintptr(m.fds[0]), "ends")
	}
	switch {
	case g.innerGone != nil && len(m.Ranks) == 0:
		return // the inner guard is active
	case g.innerGone != nil:
		for _, id := range m.Ranks {
			g.ranks[id.PID] = false
			g.order = append(g.order, id.PID)
		}
	case len(m.Ranks) > 0:
		g.adopted = m.Ranks
		g.marker = newMarker(m.Run, m.Began, g.owner.PID)
		g.track()
	}
	_ = g.link.send(message{Kind: watching}) // no error: a supervisor that is gone needs no answer
	g.reapChildren()
}

// drainRequests takes in the last messages of a supervisor that is gone. The socket ends at once,
// unless a child that the supervisor was about to start holds it.
func (g *guard) drainRequests(requests <-chan supervisorMessage) {
	late := time.After(100 * time.Millisecond)
	for {
		select {
		case r, ok := <-requests:
			if !ok {
				return
			}
			if r.Kind == watchGuard {
				g.watch(r)
				continue
			}
			g.asked = g.asked || r.Kind == asked
			for _, fd := range r.fds {
				unix.Close(fd)
			}
		case <-late:
			return
		}
	}
}

// spawn starts one rank, and answers with its pid and a pidfd.
func (g *guard) spawn(m message, fds []int) {
	answer := message{Kind: started}
	pid, pidfd, call, err := spawnRank(m, fds)
	for _, fd := range fds {
		unix.Close(fd) // else the reader of a rank's output would never see its end
	}
	if err != nil {
		answer.Call, answer.Errno = call, int(unix.EINVAL)
		var errno unix.Errno
		if errors.As(err, &errno) {
			answer.Errno = int(errno)
		}
		_ = g.link.send(answer) // no error: a supervisor that is gone needs no answer
		return
	}
	g.ranks[pid] = false
	g.order = append(g.order, pid)
	answer.PID = pid
	_ = g.link.send(answer, pidfd)
	unix.Close(pidfd)
}

// reapChildren reports the ends of ranks, which stay zombies until the guard is released, and reaps
// all other children.
func (g *guard) reapChildren() {
	if g.innerGone != nil && len(g.ranks) == 0 {
		return // children may be orphans of the inner guard, not yet known as ranks
	}
	pids, err := children(os.Getpid())
	if err != nil {
		return
	}
	for _, pid := range pids {
		reported, ours := g.ranks[pid]
		switch {
		case !ours:
			reap(pid)
		case !reported:
			if e, over, err := peek(pid); err == nil && over {
				g.ranks[pid] = true
				_ = g.link.send(message{Kind: exited, PID: pid, End: e})
			}
		}
	}
}

// shutDown ends a guard after the supervisor's sweep. Only an unknown rank, for which Start stopped waiting,
// can still run.
func (g *guard) shutDown(known []identity) error {
	g.awaitInner(releaseTimeout * 3 / 4)
	g.reapChildren()
	for _, id := range known {
		g.ranks[id.PID] = true // ended, or found to be unkillable
	}
	for _, reported := range g.ranks {
		if !reported {
			ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout/2)
			defer cancel()
			sweeper{g.find, g.direct}.sweep(ctx)
			break
		}
	}
	for pid := range g.ranks {
		reap(pid)
	}
	return nil
}

// innerLives reports whether there is an inner guard that is alive.
func (g *guard) innerLives() bool {
	if g.innerGone == nil {
		return false
	}
	select {
	case <-g.innerGone:
		return false
	default:
		return true
	}
}

// awaitInner waits for the end of the inner guard, if there is one, and kills it after timeout.
func (g *guard) awaitInner(timeout time.Duration) {
	if g.innerGone == nil {
		return
	}
	select {
	case <-g.innerGone:
	case <-time.After(timeout):
		if fd, err := openProcess(g.inner); err == nil {
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // no error: it may be dead already
			unix.Close(fd)
		}
		<-g.innerGone
	}
}

// track records the processes that the ranks of this guard have started since it took over.
func (g *guard) track() {
	t, err := snapshot()
	if err != nil {
		return
	}
	for _, p := range g.find(t) {
		g.known[p.identity] = true
	}
	for id := range g.known {
		if !t.is(id) {
			delete(g.known, id)
		}
	}
}

// endDescendants kills all processes that the dead supervisor's ranks have left.
func (g *guard) endDescendants() error {
	ctx, cancel := context.WithTimeout(context.Background(), guardBound)
	defer cancel()
	written := g.writeEnds()
	defer func() {
		select {
		case <-written:
		case <-ctx.Done():
		}
	}()
	dead := make(map[identity]bool)
	alive := g.innerLives()
	s := sweeper{g.find, g.direct}
	for _, p := range s.scan() {
		dead[p.identity] = true
	}
	for pid := range g.ranks {
		_ = unix.Kill(-pid, unix.SIGKILL) // one call ends a whole group, even while it forks
	}
	killed, left := s.sweep(ctx)
	if g.innerGone != nil {
		// The inner guard has done the same meanwhile. Its remaining descendants are now this guard's.
		g.awaitInner(time.Second)
		killed, left = s.sweep(ctx)
	}
	if alive {
		dead = make(map[identity]bool) // the inner guard has reported them
	}
	for _, p := range killed {
		dead[p.identity] = true
	}
	g.reapChildren()
	if len(left) > 0 {
		return fmt.Errorf("gpurun was killed, and %d processes of its ranks could not be killed, the first is process %d",
			len(left), left[0].PID)
	}
	if len(dead) > 0 {
		fmt.Fprintf(os.Stderr,
			"gpurun: warning: gpurun was killed, and its guard process killed the %d processes that it had left\n", len(dead))
	}
	return nil
}

// find returns everything that this guard must end: its descendants, the ranks that it took over with
// theirs, their sessions, and the orphans with the marker.
func (g *guard) find(t processTable) []process {
	self := os.Getpid()
	set := make(map[int]bool)
	t.add(set, self)
	sessions := make(map[int]bool)
	for pid := range g.ranks {
		sessions[pid] = true
	}
	for _, id := range g.adopted {
		_, there := t.procs[id.PID]
		if there && !t.is(id) {
			continue // another process has this number now, so that the session is empty
		}
		sessions[id.PID] = true
		if there {
			t.add(set, id.PID)
		}
	}
	for id := range g.known {
		if t.is(id) {
			t.add(set, id.PID)
		}
	}
	if len(g.adopted) > 0 {
		t.add(set, t.reparented(g.owner.PID, self, g.began)...)
	}
	t.addBelonging(set, sessions, g.began, g.marker)
	return t.alive(set, map[int]bool{self: true, g.owner.PID: true, g.inner.PID: true})
}

// direct returns the guard's living children.
func (g *guard) direct() []process {
	return livingChildren(os.Getpid(), map[int]bool{os.Getpid(): true, g.inner.PID: true})
}
