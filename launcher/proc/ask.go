package proc

import "syscall"

// Ask sends sig to those processes that have a handler for it: in each rank's tree the
// outermost ones. It ends nobody. It returns their pids by rank.
func (g *Group) Ask(sig syscall.Signal) map[int][]int {
	asked := map[int][]int{}
	t, err := snapshot()
	if err != nil {
		g.log.Warn("list processes", "error", err)
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

// askOne reports whether the process that id names was signalled.
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

// State says what a process does: "running", "sleeping", "waiting for a device", "stopped" by
// a signal or a debugger; empty for one that has ended.
func State(pid int) string {
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
