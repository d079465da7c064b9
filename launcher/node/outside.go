package node

import (
	"github.com/gpurun/gpurun/strategy"
)

// An outside adds the memory that processes hold on their devices outside PyTorch's allocator: the driver's
// figure minus the process's own. Both must be from about the same time. So the driver is read only after a
// step or when memory has run out, when the allocator's size does not change quickly. The last known figure
// stays.
type outside struct {
	used  func(pid int) int64
	known map[int]int64 // by process
	emit  func(strategy.Fact)
}

// withOutside wraps an emit. Only one goroutine at a time may call the result.
func withOutside(used func(pid int) int64, emit func(strategy.Fact)) func(strategy.Fact) {
	if used == nil {
		return emit
	}
	o := &outside{used: used, known: map[int]int64{}, emit: emit}
	return o.add
}

func (o *outside) add(f strategy.Fact) {
	if m := f.Memory(); m != nil && m.Held > 0 && (m.Steps > 0 || m.Failed != "") {
		if bytes := o.used(m.PID) - m.Held; bytes > 0 && len(o.known) < mostProcesses {
			o.known[m.PID] = bytes
		}
		f.Memory().Outside = o.known[m.PID]
	}
	o.emit(f)
}

// mostProcesses bounds the remembered processes: ranks may start any number.
const mostProcesses = 4096
