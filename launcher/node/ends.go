package node

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/private"
	"github.com/gpurun/gpurun/launcher/probe"
	"github.com/gpurun/gpurun/launcher/proc"
	"github.com/gpurun/gpurun/strategy"
)

// endsFile is where an attempt's folder has how the ranks ended, if all ended well and
// gpurun was killed before it could journal that.
const endsFile = "ends.json"

// openEnds makes it. Without it a gpurun that is killed as the ranks end trains again; so
// does one of several nodes, whose guard knows of its own ranks only.
func (a *attempt) openEnds() *os.File {
	if a.meeting.Nodes > 1 {
		return nil
	}
	f, err := private.OpenFile(filepath.Join(a.dir, endsFile), os.O_CREATE|os.O_RDWR)
	if err != nil {
		return nil
	}
	proc.LockEnds(f)
	return f
}

// closeEnds removes it where nothing was written.
func (a *attempt) closeEnds() {
	if a.ends == nil {
		return
	}
	if info, err := a.ends.Stat(); err == nil && info.Size() == 0 {
		_ = os.Remove(a.ends.Name())
	}
	a.ends.Close()
}

// An unfinished attempt is the last of a journal, whose end no gpurun saw.
type unfinished struct {
	launcher.Started
	Ranks int
}

// lastUnfinished is the attempt that ended together with the gpurun that began last; false
// for none, and for one that was being stopped for a faster plan.
func lastUnfinished(events []launcher.Event) (u unfinished, found bool) {
	for _, e := range events {
		switch e := e.(type) {
		case launcher.Began:
			u, found = unfinished{Ranks: e.Job.Ranks}, false
		case launcher.Started:
			u.Started, found = e, true
		case launcher.Climbed, launcher.Exited, launcher.Ended, launcher.Finished:
			found = false
		}
	}
	return u, found
}

// RecoverEnds journals how the last attempt of a run ended, where its gpurun was killed
// after the ranks had ended with 0 by themselves, and returns the events with that.
func (l *EventLog) RecoverEnds(events []launcher.Event, accelerator string) ([]launcher.Event, error) {
	u, found := lastUnfinished(events)
	if !found {
		return events, nil
	}
	e := ended(filepath.Join(l.store.Dir(), filepath.Base(u.Dir)), u)
	if e.Accelerator = accelerator; !e.EndedWell() && !strategy.Diagnose(e).OutOfMemory() {
		return events, nil // cut off
	}
	exited := launcher.Exited{Evidence: e}
	return append(events, exited), l.Append(exited)
}

// ended is what the folder of an unfinished attempt holds of its end: no exits unless all
// ranks ended with 0.
func ended(dir string, u unfinished) strategy.Evidence {
	e := strategy.Evidence{Attempt: u.N, Plan: u.Plan, Ranks: u.Ranks, Started: u.At}
	f, err := private.OpenFile(filepath.Join(dir, endsFile), os.O_RDONLY)
	if err != nil {
		return e
	}
	defer f.Close()
	ends := proc.ReadEnds(f)
	if len(ends) == 0 {
		return e
	}
	var ranks []int
	for _, end := range ends {
		ranks = append(ranks, end.Rank)
	}
	stop, _ := probe.Watch(dir, ranks, e.Add, nil)
	stop() // an exit code of 0 may hide a failure
	for _, end := range ends {
		e.Add(end)
		if end.Time.After(e.Ended) {
			e.Ended = end.Time
		}
	}
	e.Add(strategy.Fact{Time: time.Now(), Rank: -1, Source: "gpurun", Gap: fmt.Sprintf("gpurun was killed as the ranks of attempt %d ended: the last of their output may be missing", u.N)})
	return e
}
