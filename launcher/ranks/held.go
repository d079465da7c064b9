package ranks

import (
	"github.com/gpurun/gpurun/launcher/system"
	"golang.org/x/sys/unix"
)

// RankMemory is the memory of a process in bytes, now and at its peak. With a limit on its data (RLIMIT_DATA)
// it is the memory that the limit counts, else resident memory without files.
type RankMemory struct{ Now, Peak int64 }

// mostLooked bounds how many processes of a rank are read.
const mostLooked = 256

// Held returns the memory of the rank's largest process: the rank itself, or one that it started. Zero after
// their end.
func (g *Group) Held(rank int) (most RankMemory) {
	pid := g.PIDs()[rank]
	if pid == 0 {
		return most
	}
	pids := []int{pid}
	for i := 0; i < len(pids) && i < mostLooked; i++ {
		if h := heldBy(pids[i]); h.Now > most.Now {
			most = h
		}
		below, _ := children(pids[i]) // none, if it has ended
		pids = append(pids, below...)
	}
	return most
}

// heldBy reads the memory of one process. The kernel keeps only the peak of all mappings. Mappings that are
// no data, such as libraries, are assumed to be constant (package hook does the same).
func heldBy(pid int) RankMemory {
	status, _ := system.ReadStatus(pid) // nothing, if it has ended
	bytesOf := func(name string) int64 { return system.ProcBytes(status[name]) }
	now, peak, all := bytesOf("RssAnon"), bytesOf("VmHWM"), bytesOf("VmRSS")
	var limit unix.Rlimit
	if unix.Prlimit(pid, unix.RLIMIT_DATA, nil, &limit) == nil && limit.Cur != unix.RLIM_INFINITY {
		now, peak, all = bytesOf("VmData"), bytesOf("VmPeak"), bytesOf("VmSize")
	}
	return RankMemory{Now: now, Peak: max(peak-all+now, now)}
}
