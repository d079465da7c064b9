package node

import (
	"github.com/gpurun/gpurun/strategy"
)

// An outside adds to what processes measure what they hold on their devices outside
// PyTorch's allocator: what the driver says less what the process says. Both are of about
// the same moment, for the driver is asked when the figures come; so it is asked only once
// a step is over, or memory has run out, when the allocator's own size no longer changes
// quickly. The last figure that could be had stays.
type outside struct {
	used  func(pid int) int64
	known map[int]int64 // by process
	emit  func(strategy.Fact)
}

// withOutside gives an emit that adds it. It is called from one goroutine at a time.
func withOutside(used func(pid int) int64, emit func(strategy.Fact)) func(strategy.Fact) {
	if used == nil {
		return emit
	}
	o := &outside{used: used, known: map[int]int64{}, emit: emit}
	return o.add
}

func (o *outside) add(f strategy.Fact) {
	if m := f.Memory; m != nil && m.Held > 0 && (m.Steps > 0 || m.Failed != "") {
		if bytes := o.used(m.PID) - m.Held; bytes > 0 && len(o.known) < mostProcesses {
			o.known[m.PID] = bytes
		}
		f.Memory.Outside = o.known[m.PID]
	}
	o.emit(f)
}

// mostProcesses bounds those that are remembered: ranks may start them without end.
const mostProcesses = 4096
