package ranks

import (
	"errors"
	"fmt"
	"github.com/gpurun/gpurun/launcher/system"
	"os"
	"slices"
	"strconv"
)

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
