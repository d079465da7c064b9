package proc

import (
	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/procfs"
)

// Held is the memory of a process, in bytes: what it holds now, and the most so far. Under a
// limit of its data (RLIMIT_DATA) it is what that counts, else what was touched, without files.
type Held struct{ Now, Peak int64 }

// mostLooked is how many processes of a rank are looked at.
const mostLooked = 256

// Held is the memory of the process that holds the most of a rank: the rank itself, or what it
// started. Zero where there is none any more.
func (g *Group) Held(rank int) (most Held) {
	pid := g.PIDs()[rank]
	if pid == 0 {
		return most
	}
	pids := []int{pid}
	for i := 0; i < len(pids) && i < mostLooked; i++ {
		if h := heldBy(pids[i]); h.Now > most.Now {
			most = h
		}
		below, _ := children(pids[i]) // of one that has ended, none
		pids = append(pids, below...)
	}
	return most
}

// heldBy reads the memory of one process. The kernel keeps the most of all mappings: what is
// no data, such as libraries, is taken to be as now (package probe measures the same).
func heldBy(pid int) Held {
	status, _ := procfs.ReadStatus(pid) // of one that has ended, nothing
	bytesOf := func(name string) int64 { return procfs.Bytes(status[name]) }
	now, peak, all := bytesOf("RssAnon"), bytesOf("VmHWM"), bytesOf("VmRSS")
	var limit unix.Rlimit
	if unix.Prlimit(pid, unix.RLIMIT_DATA, nil, &limit) == nil && limit.Cur != unix.RLIM_INFINITY {
		now, peak, all = bytesOf("VmData"), bytesOf("VmPeak"), bytesOf("VmSize")
	}
	return Held{Now: now, Peak: max(peak-all+now, now)}
}
