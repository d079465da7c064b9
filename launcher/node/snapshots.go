package node

import (
	"fmt"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/hook"
	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/memory"
)

// mostSnapshots bounds the number of ranks whose snapshot is read, since the snapshots are much alike.
const mostSnapshots = 8

// record returns which allocations of an attempt to record.
func (n *Node) record(l launcher.Launch) hook.Recording {
	switch {
	case n.opts.Snapshot == "" || n.opts.Snapshot == "off":
		return hook.RecordNone
	case n.opts.Snapshot == "always" || l.Closely:
		return hook.RecordAll
	}
	return hook.RecordFirst
}

// measured is each rank's latest measurement of its memory. If a rank has several processes, the one that ran
// out of memory counts.
type measured map[int]*memory.Measurement

// tap wraps an emit to remember measurements. Only one goroutine at a time may call the result.
func (m *measured) tap(emit func(strategy.Fact)) func(strategy.Fact) {
	*m = measured{}
	return func(f strategy.Fact) {
		if of := f.Memory(); of != nil && ((*m)[f.Rank] == nil || of.Failed != "" || (*m)[f.Rank].Failed == "") {
			(*m)[f.Rank] = of
		}
		emit(f)
	}
}

// snapshots emits, once the ranks are gone, the contents of their allocators when memory ran out. It omits
// ranks that ended well, since they handled the error.
func (a *attempt) snapshots() {
	if a.node.opts.Snapshot == "" || a.node.opts.Snapshot == "off" {
		return
	}
	read := 0
	for _, rank := range a.ranks() {
		a.mu.Lock()
		well := a.well[rank]
		a.mu.Unlock()
		if well {
			if err := hook.RemoveSnapshots(a.dir, rank); err != nil {
				a.emit(strategy.Fact{Time: time.Now(), Rank: rank, Source: "gpurun",
					Content: strategy.Gap(fmt.Sprintf("remove a snapshot that is not needed: %v", err))})
			}
			continue
		}
		if read == mostSnapshots {
			continue
		}
		if s, found := hook.NewestSnapshot(a.dir, rank, a.measured[rank]); found {
			read++
			a.emit(strategy.Fact{Time: time.Now(), Rank: rank, Source: "probe", Content: &s})
		}
	}
}

// Bounds how long the ranks have to write their stacks, and how often gpurun looks for them.
const (
	stacksBound = 3 * time.Second
	stacksPause = 50 * time.Millisecond
)

// stacks returns the signal that requests stacks; 0 for none.
func (o *Options) stacks() int {
	if !o.Stalls {
		return 0
	}
	return int(hook.StackSignal)
}

// Stacks emits the stack of each rank. It uses py-spy, if installed, for ranks without the hook.
func (a *attempt) Stacks() {
	silent := map[int][]int{}
	for rank, pid := range a.group.PIDs() {
		if ranks.ProcessState(pid) != "" { // it has not ended
			silent[rank] = []int{pid}
		}
	}
	for rank, pids := range a.group.Ask(hook.StackSignal) {
		silent[rank] = pids
	}
	emit := func(rank int, s strategy.Stack) {
		delete(silent, rank)
		a.emit(strategy.Fact{Time: time.Now(), Rank: rank, Source: "probe", Content: &s})
	}
	for until := time.Now().Add(stacksBound); len(silent) > 0 && time.Now().Before(until); time.Sleep(stacksPause) {
		for rank, pids := range silent {
			if s, whole := hook.Stacks(a.dir, rank, pids[0]); whole {
				emit(rank, s)
			}
		}
	}
	for rank, pids := range silent {
		s, ok := hook.Spied(pids[0])
		if !ok {
			s, _ = hook.Stacks(a.dir, rank, pids[0])
		}
		if len(s.Frames) == 0 {
			s = strategy.Stack{PID: pids[0], State: ranks.ProcessState(pids[0])}
		}
		emit(rank, s)
	}
}
