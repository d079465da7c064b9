package node

import (
	"time"

	"github.com/gpurun/gpurun/launcher/hook"
	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/strategy"
)

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
