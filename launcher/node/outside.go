package node

import (
	"github.com/gpurun/gpurun/strategy"
)

// An outside adds the memory that processes hold on their devices outside PyTorch's allocator: the driver's
// figure less the process's. Both must be of about the same time, so that the driver is read only when a
// step is over, or memory has run out: then the allocator's size does not change quickly. The last known
// figure stays.
type outside struct {
	used  func(pid int) int64
	known map[int]int64 // by process
	emit  func(strategy.Fact)
}

// withOutside wraps an emit. The result is called from one goroutine at a time.
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

// mostProcesses bounds the remembered processes: ranks may start any number.
const mostProcesses = 4096
