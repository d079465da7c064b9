package node

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/hook"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/launcher/system"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// endsFile, in an attempt's folder, records that all ranks ended well, if gpurun was killed before it could
// journal that.
const endsFile = "ends.json"

// openEnds creates endsFile. Without it, a run whose gpurun was killed as the ranks ended trains again. A run
// on several nodes always does, since a guard knows only the ranks of its node.
func (a *attempt) openEnds() *os.File {
	if a.meeting.Nodes > 1 {
		return nil
	}
	f, err := system.OpenFile(filepath.Join(a.dir, endsFile), os.O_CREATE|os.O_RDWR)
	if err != nil {
		return nil
	}
	ranks.LockEnds(f)
	return f
}

// closeEnds removes endsFile if nothing was written.
func (a *attempt) closeEnds() {
	if a.ends == nil {
		return
	}
	if info, err := a.ends.Stat(); err == nil && info.Size() == 0 {
		_ = os.Remove(a.ends.Name())
	}
	a.ends.Close()
}

// RecoverEnds journals the end of a run's last attempt if gpurun was killed after all ranks had ended with 0
// by themselves. It returns the events including this end, and adds it to the run that they make.
func (l *EventLog) RecoverEnds(
	run *journal.Run, events []launcher.Event, accelerator string,
) ([]launcher.Event, error) {
	last := run.Last()
	if !run.Running() || last.Phase != journal.Running || last.SpedUp != nil {
		return events, nil
	}
	e := ended(filepath.Join(l.store.Dir(), filepath.Base(last.Dir)), last.Started, run.Began.Job.Ranks)
	if e.Accelerator = accelerator; !e.EndedWell() && !strategy.Diagnose(e).OutOfMemory() {
		return events, nil // the attempt was cut off
	}
	exited := launcher.Exited{Evidence: e}
	run.Add(exited)
	return append(events, exited), l.Append(exited)
}

// ended reads the evidence in the folder of an unfinished attempt. It has no exits unless all ranks ended
// with 0.
func ended(dir string, s launcher.Started, count int) strategy.Evidence {
	e := strategy.Evidence{Attempt: s.N, Plan: s.Plan, Ranks: count, Started: s.At}
	f, err := system.OpenFile(filepath.Join(dir, endsFile), os.O_RDONLY)
	if err != nil {
		return e
	}
	defer f.Close()
	ends := ranks.ReadEnds(f)
	if len(ends) == 0 {
		return e
	}
	var ranks []int
	for _, end := range ends {
		ranks = append(ranks, end.Rank)
	}
	stop, _ := hook.Watch(dir, ranks, e.Add, nil)
	stop() // the hook may report a failure despite exit code 0
	for _, end := range ends {
		e.Add(end)
		if end.Time.After(e.Ended) {
			e.Ended = end.Time
		}
	}
	e.Add(strategy.Fact{Time: time.Now(), Rank: -1, Source: "gpurun",
		Content: strategy.Gap(fmt.Sprintf(
			"gpurun was killed as the ranks of attempt %d ended: the last of their output may be missing", s.N))})
	return e
}

// mostStored bounds the paths of an attempt whose file systems are looked up.
const mostStored = 4

// storedPaths are the paths in the ranks' errors about storage.
type storedPaths struct {
	mu   sync.Mutex
	full map[string]bool // whether the error says that it is full
}

// note remembers the path of a finding.
func (s *storedPaths) note(f *strategy.Fact) {
	path := strategy.StoragePath(f.Finding())
	if path == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.full == nil {
		s.full = map[string]bool{}
	}
	if len(s.full) < mostStored {
		s.full[path] = s.full[path] || f.Finding().Code != cause.Storage
	}
}

// facts are the file systems of the paths.
func (s *storedPaths) facts() (all []strategy.Fact) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for path, full := range s.full {
		if found := ranks.ThisMachine().FileSystemOf(path, full); found != nil {
			all = append(all, strategy.Fact{Time: time.Now(), Rank: -1, Source: "gpurun", Content: found})
		}
	}
	return all
}

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
