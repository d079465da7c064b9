package ranks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/system"
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

// identity names one process permanently: the kernel reuses a pid, but never with the same start time.
type identity struct {
	PID   int
	Start uint64 // clock ticks since boot, field 22 of /proc/PID/stat
}

// process has the fields of /proc/PID/stat that supervision needs.
type process struct {
	identity
	parent  int
	group   int
	session int
	state   byte
	threads int
	name    string
}

// alive reports whether the process still runs code. A process whose main thread has ended appears as a
// zombie while its other threads run. Only the number of threads distinguishes it from a dead one.
func (p process) alive() bool {
	switch p.state {
	case 'Z', 'X', 'x':
		return p.threads > 1
	}
	return true
}

// readProcess reads one process. The error wraps fs.ErrNotExist, or ESRCH, if there is none.
func readProcess(pid int) (process, error) {
	stat, err := system.ReadStat(pid)
	if err != nil {
		return process{}, err
	}
	return processOf(stat)
}

func processOf(stat system.Stat) (process, error) {
	p := process{name: stat.Name()}
	var err error
	number := func(field int) int {
		n, e := strconv.Atoi(stat.Field(field))
		err = errors.Join(err, e)
		return n
	}
	p.PID, p.parent, p.group, p.session, p.threads = number(1), number(4), number(5), number(6), number(20)
	start, e := strconv.ParseUint(stat.Field(22), 10, 64)
	p.Start = start
	if err = errors.Join(err, e); err != nil {
		return process{}, fmt.Errorf("parse /proc/PID/stat: %w", err)
	}
	p.state = stat.Field(3)[0]
	return p, nil
}

// A processTable has the processes that one walk over /proc found.
type processTable struct {
	procs    map[int]process
	children map[int][]int // by the parent's pid
}

// snapshot walks over /proc. It is not atomic: it may miss a process that ends or forks meanwhile, so
// that a sweep needs two empty walks in a row.
func snapshot() (processTable, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return processTable{}, fmt.Errorf("list processes: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return processTable{}, fmt.Errorf("list processes: %w", err)
	}
	t := processTable{procs: make(map[int]process, len(names)), children: make(map[int][]int, len(names))}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, err := readProcess(pid); err == nil {
			t.procs[pid] = p
			t.children[p.parent] = append(t.children[p.parent], pid)
		}
	}
	return t, nil
}

// add adds the processes with the given pids, and all their descendants, to set.
func (t processTable) add(set map[int]bool, roots ...int) {
	for queue := slices.Clone(roots); len(queue) > 0; {
		pid := queue[0]
		queue = queue[1:]
		if set[pid] {
			continue
		}
		set[pid] = true
		queue = append(queue, t.children[pid]...)
	}
}

// children lists the children of a process. If the kernel has a file for that, it does not read every process
// of the machine.
func children(pid int) ([]int, error) {
	if pids, known := system.ChildProcesses(pid); known {
		return pids, nil
	}
	t, err := snapshot()
	if err != nil {
		return nil, err
	}
	return t.children[pid], nil
}

// parentAndChildren reads one process and its children.
func parentAndChildren(parent int) processTable {
	t := processTable{procs: make(map[int]process), children: make(map[int][]int)}
	pids, err := children(parent)
	if err != nil {
		return t // it has ended
	}
	t.children[parent] = pids
	for _, pid := range append([]int{parent}, pids...) {
		if p, err := readProcess(pid); err == nil {
			t.procs[pid] = p
		}
	}
	return t
}

// livingChildren returns the living children of a process, except those in spare.
func livingChildren(parent int, spare map[int]bool) []process {
	t, set := parentAndChildren(parent), make(map[int]bool)
	t.add(set, parent)
	return t.alive(set, spare)
}

// is reports whether the table has the process that id names.
func (t processTable) is(id identity) bool {
	return t.procs[id.PID].identity == id
}

// MarkerVariable is the environment variable that identifies a rank and processes that inherit its
// environment.
const MarkerVariable = "GPURUN_RUN_ID"

const slurmJobVariable = "SLURM_JOB_ID"

// marker identifies gpurun's processes that no longer descend from a guard, because their parents ended after
// all guards above them had died.
//
// The variable alone is not enough: people copy environments, and a rank's environment is inherited by
// a job that it submits and by a window that it opens in a terminal multiplexer. The process must also
// be an orphan that started after the attempt, of the same user, control group and Slurm job.
type marker struct {
	value  string
	began  uint64 // start time of the attempt, in ticks
	uid    uint32
	cgroup []byte
	job    string
	// adopters are the processes that can become the parent of such an orphan: gpurun and its ancestors.
	adopters map[int]bool
}

func newMarker(value string, began uint64, supervisor int) *marker {
	if value == "" {
		return nil
	}
	cgroup, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil // without the group the variable is not enough
	}
	return &marker{
		value:    value,
		began:    began,
		uid:      uint32(os.Geteuid()),
		cgroup:   cgroup,
		job:      os.Getenv(slurmJobVariable),
		adopters: ancestors(supervisor),
	}
}

// ancestors returns a process and all processes above it, including process 1.
func ancestors(pid int) map[int]bool {
	line := map[int]bool{1: true}
	for pid > 1 && !line[pid] {
		line[pid] = true
		p, err := readProcess(pid)
		if err != nil {
			break
		}
		pid = p.parent
	}
	return line
}

// matches reports whether p has the marker and everything else agrees.
func (m *marker) matches(p process) bool {
	if m == nil || p.Start < m.began || !m.adopters[p.parent] {
		return false
	}
	dir := "/proc/" + strconv.Itoa(p.PID)
	info, err := os.Stat(dir)
	if err != nil {
		return false
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !ok || owner.Uid != m.uid {
		return false
	}
	cgroup, err := os.ReadFile(dir + "/cgroup")
	if err != nil || !bytes.Equal(cgroup, m.cgroup) {
		return false
	}
	// The environment comes last, since the read may wait for the kernel's lock on the process's memory.
	environ, err := os.ReadFile(dir + "/environ")
	return err == nil && variable(environ, MarkerVariable) == m.value && variable(environ, slurmJobVariable) == m.job
}

// variable returns the first variable of that name in /proc/PID/environ, which is the one that getenv
// returns; empty for none.
func variable(environ []byte, name string) string {
	for entry := range bytes.SplitSeq(environ, []byte{0}) {
		if value, ok := bytes.CutPrefix(entry, []byte(name+"=")); ok {
			return string(value)
		}
	}
	return ""
}
