package ranks

import (
	"encoding/json"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/system"
	"github.com/gpurun/gpurun/strategy"
)

// If gpurun is killed while the ranks end, only the guard knows how they ended. So either gpurun or the guard
// writes to Options.Ends if all ranks ended with 0 by themselves. The guard has the open file with its lock,
// and closes it after writing: a reader that gets the lock can read the result.

const (
	// maxEnds bounds the file, in bytes.
	maxEnds = 16 << 20
	// endsBound bounds the wait for a guard that may still write, and endsPause is the interval of tries.
	endsBound = 5 * time.Second
	endsPause = 5 * time.Millisecond
)

// LockEnds locks an open file for Options.Ends. On a file system without locks readers do not wait for
// the guard.
func LockEnds(f *os.File) { _ = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }

// ReadEnds reads Options.Ends of a group whose gpurun is gone: an exit for each rank if all ended with 0 by
// themselves, else none.
func ReadEnds(f *os.File) []strategy.Fact {
	for late := time.Now().Add(endsBound); ; time.Sleep(endsPause) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
		if err != unix.EWOULDBLOCK || time.Now().After(late) {
			break
		}
	}
	var ends []strategy.Fact
	if json.NewDecoder(io.LimitReader(f, maxEnds)).Decode(&ends) != nil {
		return nil
	}
	return ends
}

func writeEnds(f *os.File, ends []strategy.Fact) error {
	text, err := json.Marshal(ends)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(text, 0)
	return err
}

func (e processEnd) fact(rank, pid int) strategy.Fact {
	return strategy.Fact{Time: e.At, Rank: rank, Source: "exit",
		Content: &strategy.Exit{Code: e.Code, Signal: e.Signal, Peak: e.Peak, PID: pid}}
}

func (o StartOptions) endsFile() []int {
	if o.Ends == nil {
		return nil
	}
	return []int{int(o.Ends.Fd())}
}

// writeEnds writes how the ranks ended. It must come before the release of the guard.
func (g *Group) writeEnds() {
	if ends := g.ownEnds(); g.options.Ends != nil && len(ends) > 0 {
		if err := writeEnds(g.options.Ends, ends); err != nil {
			g.warn("write how the ranks ended: %v", err)
		}
	}
}

// ownEnds returns the ranks' ends if all ended with 0 by themselves, else none.
func (g *Group) ownEnds() (ends []strategy.Fact) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range g.members {
		if e := r.end.Exit(); g.asked || e == nil || e.Code != 0 {
			return nil
		}
		ends = append(ends, r.end)
	}
	return ends
}

// writeEnds writes how the ranks ended once the supervisor is gone, before any is killed, and releases
// the lock. It does not wait: the file system may hang.
func (g *guard) writeEnds() (written <-chan struct{}) {
	done := make(chan struct{})
	if g.ends == nil {
		close(done)
		return done
	}
	ends := g.ownEnds()
	go func() { // ends with the process at the latest
		defer close(done)
		defer g.ends.Close()
		if len(ends) > 0 && writeEnds(g.ends, ends) == nil {
			_ = g.ends.Sync() // best effort
		}
	}()
	return done
}

func (g *guard) ownEnds() (ends []strategy.Fact) {
	for rank, pid := range g.order {
		e, over, err := peek(pid)
		if g.asked || err != nil || !over || e.Code != 0 {
			return nil
		}
		ends = append(ends, e.fact(rank, pid))
	}
	return ends
}

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
