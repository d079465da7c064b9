package ranks

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/system"
)

// Stop ends the group. It returns when all processes that the group started are gone, or have survived
// Options.KillTimeout. It sends SIGTERM, or sig, to every rank's process group, even if the leader has ended;
// waits until the groups are empty or grace is over; sends SIGKILL; and sweeps. SIGCONT follows the first
// signal, since a stopped rank would not handle that.
//
// A second call waits for the first, and returns the same report.
func (g *Group) Stop(grace time.Duration, sig ...syscall.Signal) StopReport {
	g.stopOnce.Do(func() { g.report = g.stop(grace, sig) })
	return g.report
}

func (g *Group) stop(grace time.Duration, sigs []syscall.Signal) StopReport {
	g.beginStop()
	g.mu.Lock()
	g.started = true // or Start has failed, and no more will come
	g.closeIfDone()
	g.mu.Unlock()
	if len(sigs) == 0 {
		sigs = []syscall.Signal{unix.SIGTERM}
	}
	for _, sig := range append(slices.Clone(sigs), unix.SIGCONT) {
		g.toGroups(sig)
	}
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-g.cut:
			cancel()
		case <-ctx.Done():
		}
	}()
	g.awaitGroups(ctx)
	cancel()
	<-done

	bound, cancel := context.WithTimeout(context.Background(), g.options.KillTimeout)
	defer cancel()
	m := newMarker(g.options.Marker, g.began, os.Getpid())
	s := sweeper{find: func(t processTable) []process { return g.find(t, m) }, direct: g.direct}
	found := s.scan()
	g.toGroups(unix.SIGKILL) // one call ends a whole group, even while it forks
	killed, left := s.sweep(bound)
	report := g.account(append(found, killed...), left)
	if len(left) == 0 {
		g.awaitLastEnds(bound)
	}
	g.writeEnds()
	g.releaseAll()
	return report
}

// beginStop marks the time from which a rank's end counts as caused by the stop. A rank that has ended
// before, even if unreported, is a zombie by then, and does not count.
func (g *Group) beginStop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopping {
		return
	}
	g.stopping = true
	for _, r := range g.members {
		if !r.stopped {
			if r.before = !r.alive(); !r.before {
				g.ask()
			}
		}
	}
}

// ask records, before a rank is signalled, that ranks may from now on end because of a signal. The caller
// holds mu.
func (g *Group) ask() {
	if g.asked = true; g.guard != nil {
		_ = g.guard.link.send(message{Kind: asked}) // for the guard that may write Ends
	}
}

// alive reports whether the rank's process still runs.
func (r *member) alive() bool {
	p, err := readProcess(r.id.PID)
	return err == nil && p.identity == r.id && p.alive()
}

// awaitGroups waits until the ranks' process groups are empty, or ctx is done.
func (g *Group) awaitGroups(ctx context.Context) {
	groups := make(map[int]bool)
	for _, r := range g.memberList() {
		groups[r.id.PID] = true
	}
	g.awaitNone(ctx, func(t processTable) []process {
		var left []process
		for _, p := range t.procs {
			if groups[p.group] && p.alive() {
				left = append(left, p)
			}
		}
		return left
	})
}

// Linger waits until the ranks and all processes that they start have ended by themselves, or ctx is done. It
// signals no process, and reports whether all are gone.
func (g *Group) Linger(ctx context.Context) bool {
	m := newMarker(g.options.Marker, g.began, os.Getpid())
	return g.awaitNone(ctx, func(t processTable) []process { return g.find(t, m) })
}

// awaitNone waits until find finds nothing in a walk over /proc. It reports false if ctx is done before.
func (g *Group) awaitNone(ctx context.Context, find func(processTable) []process) bool {
	for ctx.Err() == nil {
		t, err := snapshot()
		if err != nil {
			g.warn("cannot wait for processes to end: %v", err)
			return false
		}
		left := find(t)
		if len(left) == 0 {
			return true
		}
		var fds []int
		for _, p := range left[:min(len(left), maxPidfds)] {
			fd, err := openProcess(p.identity)
			if err == nil {
				fds = append(fds, fd)
			} else if !errors.Is(err, unix.ESRCH) {
				g.warn("cannot wait for process %d, the grace period ends now: %v", p.PID, err)
				for _, fd := range fds {
					unix.Close(fd)
				}
				return false
			}
		}
		awaitExits(ctx, fds)
	}
	return false
}

// find returns everything that the group started and that still runs.
func (g *Group) find(t processTable, m *marker) []process {
	g.mu.Lock()
	defer g.mu.Unlock()
	self := os.Getpid()
	spare := map[int]bool{self: true}
	set := make(map[int]bool)
	for _, k := range g.guards() {
		spare[k.id.PID] = true
		t.add(set, k.id.PID)
	}
	sessions := make(map[int]bool)
	for _, r := range g.members {
		sessions[r.id.PID] = true
		if t.is(r.id) {
			t.add(set, r.id.PID)
		}
	}
	if g.lost && len(g.members) > 0 {
		t.add(set, t.reparented(self, g.members[0].id.PID, g.began)...)
	}
	if !g.lost {
		m = nil // not needed: all descend from a guard
	}
	t.addBelonging(set, sessions, g.began, m)
	return t.alive(set, spare)
}

// guards returns the living guards. The caller holds mu.
func (g *Group) guards() []*guardHandle {
	var all []*guardHandle
	for _, k := range []*guardHandle{g.outer, g.guard} {
		if k != nil {
			all = append(all, k)
		}
	}
	return all
}

// direct returns the guards' living children, and the living children that this process got from a dead
// guard.
func (g *Group) direct() []process {
	g.mu.Lock()
	defer g.mu.Unlock()
	var procs []process
	spare := make(map[int]bool)
	for _, k := range g.guards() {
		spare[k.id.PID] = true
	}
	for guard := range spare {
		procs = append(procs, livingChildren(guard, spare)...)
	}
	if g.lost && len(g.members) > 0 {
		self := os.Getpid()
		t, set := parentAndChildren(self), make(map[int]bool)
		t.add(set, t.reparented(self, g.members[0].id.PID, g.began)...)
		procs = append(procs, t.alive(set, spare)...)
	}
	return procs
}

// awaitLastEnds waits for the reports about dead ranks. If a guard does not report because it is suspended,
// it and its successor are killed, and this process reads the ends itself.
func (g *Group) awaitLastEnds(ctx context.Context) {
	late := time.NewTicker(releaseTimeout)
	defer late.Stop()
	for {
		select {
		case <-g.quiet:
			return
		case <-ctx.Done():
			return
		case <-late.C:
			g.mu.Lock()
			if g.guard != nil {
				g.guard.kill()
			}
			g.mu.Unlock()
		}
	}
}

// account makes the report from the killed processes, which may repeat, and the remaining ones.
func (g *Group) account(killed, left []process) StopReport {
	var report StopReport
	ranks := make(map[identity]int)
	for _, r := range g.memberList() {
		ranks[r.id] = r.rank
	}
	seen := make(map[identity]bool)
	for _, p := range killed {
		rank, ok := ranks[p.identity]
		switch {
		case seen[p.identity]:
		case ok:
			report.Killed = append(report.Killed, rank)
		default:
			report.Swept++
		}
		seen[p.identity] = true
	}
	slices.Sort(report.Killed)
	for _, p := range left {
		rank, ok := ranks[p.identity]
		if !ok {
			rank = -1
		}
		report.Leftover = append(report.Leftover, describe(p, rank))
	}
	return report
}

// releaseAll releases the guards, the zombies and the descriptors.
func (g *Group) releaseAll() {
	g.mu.Lock()
	g.released = true
	guards := g.guards()
	for _, k := range guards {
		if k.link.send(message{Kind: release, Ranks: g.identities()}) != nil {
			k.kill()
		}
	}
	for _, r := range g.members {
		if g.lost {
			reap(r.id.PID)
		}
		r.pidfd.Close() // also ends awaitRank
	}
	if !g.closed {
		g.closed = true
		close(g.exits)
		close(g.quiet)
	}
	outer := g.outer
	late := time.AfterFunc(releaseTimeout, func() {
		for _, k := range guards {
			k.kill()
		}
	})
	g.mu.Unlock()
	if outer != nil {
		<-outer.gone
		outer.cleanUp()
	}
	g.running.Wait()
	late.Stop()
	g.release()
}

// Kill ends the grace of a running Stop and of every later one, as a second Ctrl-C does.
func (g *Group) Kill() {
	g.cutOnce.Do(func() { close(g.cut) })
}

// Signal passes a signal on to the ranks.
//
// SIGTERM and SIGINT go to the ranks' process groups, and begin a stop: later ends have Stopped set. SIGTSTP
// and SIGCONT go to the groups too. SIGTSTP is sent as SIGSTOP, because each rank has its own session, and
// SIGTSTP does not stop processes of such a group (POSIX, orphaned process group). Any other signal is a
// notice. It would end a rank without a handler, so only ranks with a handler get it; Signal returns how many
// did.
func (g *Group) Signal(sig syscall.Signal) (reached int) {
	switch sig {
	case unix.SIGTERM, unix.SIGINT, unix.SIGKILL:
		g.beginStop()
		g.toGroups(sig)
	case unix.SIGTSTP, unix.SIGSTOP:
		g.toGroups(unix.SIGSTOP)
	case unix.SIGCONT:
		g.toGroups(sig)
	default:
		for _, r := range g.memberList() {
			if !catches(r.id.PID, sig) {
				continue
			}
			g.mu.Lock()
			g.ask()
			g.mu.Unlock()
			if signalProcess(r.pidfd, sig) == nil { // an error means that it has ended meanwhile
				reached++
			}
		}
	}
	return reached
}

// catches reports whether a process has a handler for sig.
func catches(pid int, sig syscall.Signal) bool {
	status, err := system.ReadStatus(pid)
	if err != nil {
		return false
	}
	mask, err := strconv.ParseUint(status["SigCgt"], 16, 64)
	return err == nil && sig > 0 && sig <= 64 && mask&(1<<(sig-1)) != 0
}

// toGroups sends sig to every rank's process group, except SIGTERM to ranks that got it from StopPeers. Ended
// ranks stay zombies until the group is done, so that a group's number cannot be reused.
func (g *Group) toGroups(sig syscall.Signal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.released {
		return
	}
	for _, r := range g.members {
		if r.stopped && sig == unix.SIGTERM {
			continue
		}
		g.toGroup(r, sig)
	}
}

// StopPeers sends sig and SIGCONT to the process groups of all ranks except those in of, and returns. The
// ends of these ranks have Stopped set. The ranks in of continue until Stop, which must follow.
//
// A rank that handles one SIGTERM gets no second one from Stop: many programs take a second one as an order
// to end at once.
func (g *Group) StopPeers(sig syscall.Signal, of []int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopping || g.released {
		return
	}
	for _, r := range g.members {
		if slices.Contains(of, r.rank) || r.stopped {
			continue
		}
		if r.stopped, r.before = true, !r.alive(); !r.before {
			g.ask()
		}
		g.toGroup(r, sig)
		g.toGroup(r, unix.SIGCONT)
	}
}

// toGroup sends sig to a rank's process group. The caller holds mu.
func (g *Group) toGroup(r *member, sig syscall.Signal) {
	if err := unix.Kill(-r.id.PID, sig); err != nil && !errors.Is(err, unix.ESRCH) {
		g.warn("signal the process group of rank %d: %s: %v", r.rank, sig, err)
	}
}

// Ask sends sig to the processes that have a handler for it, only the topmost ones in each rank's tree. No
// process ends by it. Ask returns their pids by rank.
func (g *Group) Ask(sig syscall.Signal) map[int][]int {
	asked := map[int][]int{}
	t, err := snapshot()
	if err != nil {
		g.warn("list processes: %v", err)
		return asked
	}
	for _, r := range g.memberList() {
		if !t.is(r.id) {
			continue // it has ended
		}
		for queue := []int{r.id.PID}; len(queue) > 0; {
			pid := queue[0]
			queue = queue[1:]
			if !catches(pid, sig) {
				queue = append(queue, t.children[pid]...)
				continue
			}
			if askOne(t.procs[pid].identity, sig) {
				asked[r.rank] = append(asked[r.rank], pid)
			}
		}
	}
	return asked
}

// askOne reports whether the process was signalled.
func askOne(id identity, sig syscall.Signal) bool {
	fd, err := openProcess(id)
	if err != nil {
		return false
	}
	f, err := pidfdFile(fd)
	if err != nil {
		return false
	}
	defer f.Close()
	return signalProcess(f, sig) == nil
}

// ProcessState is "running", "sleeping", "waiting for a device", or "stopped" by a signal or a debugger; empty
// for a process that has ended.
func ProcessState(pid int) string {
	p, err := readProcess(pid)
	if err != nil || !p.alive() {
		return ""
	}
	switch p.state {
	case 'R':
		return "running"
	case 'D':
		return "waiting for a device"
	case 'T', 't':
		return "stopped"
	}
	return "sleeping"
}
