package ranks

import (
	"errors"
	"slices"
	"strconv"
	"syscall"

	"github.com/gpurun/gpurun/launcher/system"
	"golang.org/x/sys/unix"
)

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
