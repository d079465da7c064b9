package artifacts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/runstate"
)

// run reads a run directory of gpurun. An attempt that ended has its evidence in
// the journal: exits, counters and findings with their times. One that was cut
// off has its ranks' output.
func (c Collector) run(dir string) (Artifacts, error) {
	r := Artifacts{Name: dir, Several: true}
	events, err := journal.Read(dir)
	if err != nil {
		return r, err
	}
	run := runstate.Of(events)
	wanted, last := c.Attempt, run.Last()
	if wanted < 0 && last != nil {
		wanted = last.N
	}
	r.Ceiling = run.Began.Job.Ceiling
	for _, a := range run.Attempts {
		if a.N == wanted && a.Phase != runstate.Running && a.Phase != runstate.CutOff {
			r.Evidence = a.Evidence
			return r, nil
		}
	}
	r.Running = last != nil && wanted == last.N && journal.Locked(dir)
	at := filepath.Join(dir, fmt.Sprintf("attempt-%d", max(wanted, 0)))
	if _, err := os.Stat(at); err != nil {
		return r, fmt.Errorf("%s has no attempt %d", dir, max(wanted, 0))
	}
	r.Evidence, err = c.attemptFolder(at)
	if r.Running && errors.Is(err, errNothingThere) {
		return r, nil // it has just begun
	}
	return r, err
}

// RunIn is the run of gpurun that a directory is or, of those below it (a job's, those
// of all jobs, or those of a working directory), the newest; empty where there is none.
func RunIn(dir string) string {
	dir = runOf(dir)
	if _, err := os.Stat(filepath.Join(dir, journal.File)); err == nil {
		return dir
	}
	var found []string
	for _, below := range []string{"*", filepath.Join("*", "*"), filepath.Join(".gpurun", "*", "*")} {
		journals, _ := filepath.Glob(filepath.Join(quotePattern(dir), below, journal.File)) // the pattern is whole
		found = append(found, journals...)
	}
	found = slices.DeleteFunc(found, func(path string) bool { return journal.IsNode(filepath.Dir(path)) })
	if len(found) == 0 {
		return ""
	}
	return filepath.Dir(newest(found))
}

// runOf is the run directory that a node's part of it is in, else dir itself.
func runOf(dir string) string {
	if journal.IsNode(dir) {
		return filepath.Dir(dir)
	}
	return dir
}

// quotePattern is a path as filepath.Glob takes it literally.
func quotePattern(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// newest is the path that was changed last.
func newest(paths []string) string {
	return slices.MaxFunc(paths, func(a, b string) int { return changed(a).Compare(changed(b)) })
}

func changed(path string) time.Time {
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}
