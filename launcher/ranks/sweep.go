package ranks

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lookAgain bounds the wait between two walks of a sweep. The end of a killed process ends the wait at once.
// The bound is for processes that were forked after the walk.
const lookAgain = 100 * time.Millisecond

// maxPidfds bounds how many processes are awaited at once, to save descriptors.
const maxPidfds = 256

// sweeper finds and kills processes until none is left.
type sweeper struct {
	// find returns the processes to kill, from a walk over /proc.
	find func(processTable) []process
	// direct returns those that are living children of the subreaper. In a chain of processes, each starts
	// the next and ends, faster than a walk finds it; but one of them is always a child of the subreaper.
	direct func() []process
}

// sweep kills with SIGKILL, through pidfds, until two walks in a row find nothing alive, or ctx is done. It
// returns the processes that it killed, and those that remain.
func (s sweeper) sweep(ctx context.Context) (killed, left []process) {
	seen := make(map[identity]bool)
	for empty := 0; empty < 2; {
		killed = append(killed, s.killChildren(ctx, seen)...)
		t, err := snapshot()
		if err != nil {
			return killed, left
		}
		left = s.find(t)
		if len(left) == 0 {
			empty++
			continue
		}
		empty = 0
		if ctx.Err() != nil {
			break
		}
		dead, fds := killAll(left, seen)
		killed = append(killed, dead...)
		step, cancel := context.WithTimeout(ctx, lookAgain)
		awaitExits(step, fds)
		cancel()
	}
	return killed, left
}

// maxStale is how often in a row killChildren may find only processes that it has already signalled, and that
// take a moment to end, before it leaves them to the sweep.
const maxStale = 10

// killChildren kills the subreaper's children until there are no new ones.
func (s sweeper) killChildren(ctx context.Context, seen map[identity]bool) (killed []process) {
	for stale := 0; stale < maxStale && ctx.Err() == nil; stale++ {
		direct := s.direct()
		if len(direct) == 0 {
			break
		}
		dead, fds := killAll(direct, seen)
		for _, fd := range fds {
			unix.Close(fd)
		}
		if len(dead) > 0 {
			killed, stale = append(killed, dead...), 0
		}
	}
	return killed
}

// killAll sends SIGKILL to each process. It returns the processes not seen before, and pidfds to wait for.
func killAll(procs []process, seen map[identity]bool) (killed []process, fds []int) {
	for _, p := range procs {
		fd, err := openProcess(p.identity)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if !seen[p.identity] {
			seen[p.identity] = true
			killed = append(killed, p)
		}
		if err != nil {
			_ = unix.Kill(p.PID, unix.SIGKILL) // out of descriptors: use the pid, which was seen a moment ago
			continue
		}
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // a process that cannot be signalled is reported as left over
		if len(fds) < maxPidfds {
			fds = append(fds, fd)
		} else {
			unix.Close(fd)
		}
	}
	return killed, fds
}

// scan returns what a single walk finds.
func (s sweeper) scan() []process {
	t, err := snapshot()
	if err != nil {
		return nil // sweep will get the same error
	}
	return s.find(t)
}

// alive returns the living processes of the set by pid, except those in spare.
func (t processTable) alive(set, spare map[int]bool) []process {
	var procs []process
	for pid := range set {
		if p, ok := t.procs[pid]; ok && !spare[pid] && p.alive() {
			procs = append(procs, p)
		}
	}
	slices.SortStableFunc(procs, func(a, b process) int { return a.PID - b.PID })
	return procs
}

// A Leftover is a process that survived SIGKILL: it is in a system call that no signal interrupts, or it
// belongs to another user.
type Leftover struct {
	PID   int
	Rank  int    // the global rank, -1 for a process that a rank started
	Name  string // as ps shows it, at most 15 bytes
	State byte   // as ps shows it: 'D' is uninterruptible
	// Channel is the kernel function that it waits in, from /proc/PID/wchan; may be empty.
	Channel string
}

// describe adds the details of a process that does not die.
func describe(p process, rank int) Leftover {
	channel, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/wchan")
	if err != nil || string(channel) == "0" {
		channel = nil
	}
	return Leftover{PID: p.PID, Rank: rank, Name: p.name, State: p.state, Channel: strings.TrimSpace(string(channel))}
}

// addBelonging adds to set the processes that belong to the ranks without descending from them, each with its
// descendants: the members of the ranks' sessions, whose numbers are the ranks' pids, and processes with the
// marker.
func (t processTable) addBelonging(set, sessions map[int]bool, began uint64, m *marker) {
	for pid, p := range t.procs {
		if set[pid] || p.Start < began {
			continue
		}
		if sessions[p.session] || m.matches(p) {
			t.add(set, pid)
		}
	}
}

// reparented returns the orphans that became children of a supervisor when the guard above them died. The
// supervisor has not started them, so that it holds no pidfd on them. Children in its own session come from a
// command that it ran, and are spared: ranks have their own sessions. known is a pid on which the supervisor
// must hold a pidfd. If it does not, it is dead, or a sandbox hides its descriptors, and no child counts.
func (t processTable) reparented(supervisor, known int, began uint64) []int {
	held, err := heldPIDs(supervisor)
	if err != nil || !held[known] {
		return nil
	}
	var pids []int
	for _, pid := range t.children[supervisor] {
		if p := t.procs[pid]; !held[pid] && p.session != t.procs[supervisor].session && p.Start >= began {
			pids = append(pids, pid)
		}
	}
	return pids
}
