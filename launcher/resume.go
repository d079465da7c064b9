package launcher

import (
	"path/filepath"
	"time"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/strategy"
)

// Continue rebuilds the state of a run from its directory's journal, as Resume does,
// and refuses a directory of another job. same compares this job's digest with a
// stored one; known is false for a version that this gpurun does not know.
func Continue(first strategy.Plan, dir string, same func(stored string) (same, known bool), events []Event) (s State, done bool, err error) {
	for _, e := range events {
		b, ok := e.(Began)
		if !ok {
			continue
		}
		switch same, known := same(b.Digest); {
		case !known:
			return State{}, false, errext.WithCode(errext.Errorf("name another --run-dir, or none for a new run",
				"the run directory %s cannot be gone on with: its digest is of a version that this gpurun does not know", dir), strategy.CodeUsage)
		case !same:
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
