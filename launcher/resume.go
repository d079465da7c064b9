package launcher

import (
	"path/filepath"
	"time"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/strategy"
)

// Continue rebuilds the state of a run from its directory's journal, as Resume does,
// and refuses a directory of another job, by its digest.
func Continue(first strategy.Plan, dir, digest string, events []Event) (s State, done bool, err error) {
	for _, e := range events {
		if b, ok := e.(Began); ok && b.Digest != digest {
			return State{}, false, errext.WithCode(errext.Errorf("name another --run-dir, or none for a new run",
				"the run directory %s is of another job: its command, train.toml or configuration differs", dir), strategy.CodeUsage)
		}
	}
	s, done = Resume(first, filepath.Base(dir), events)
	return s, done, nil
}

// BeganAt is when attempt 0 of the run was started, now for a new run. The
// second is cut off, since file systems keep times more coarsely than clocks.
func BeganAt(events []Event) time.Time {
	for _, e := range events {
		if ended, ok := e.(Ended); ok {
			return ended.Evidence.Started.Truncate(time.Second)
		}
		if b, ok := e.(Began); ok && !b.At.IsZero() {
			return b.At.Truncate(time.Second)
		}
	}
	return time.Now().Truncate(time.Second)
}
