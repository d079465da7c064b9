package diagnose

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/lazy"
)

// run reads a run directory of gpurun. The evidence of an attempt that ended is in the
// journal: exits, counters and findings with their times. That of one that was cut off is its
// ranks' output.
func (c Collector) run(dir string) (Artifacts, error) {
	r := Artifacts{Name: dir, Several: true}
	events, err := journal.Read(dir)
	if err != nil {
		return r, err
	}
	run := journal.RunOf(events)
	wanted, last := c.Attempt, run.Last()
	if wanted < 0 && last != nil {
		wanted = last.N
	}
	r.Ceiling = run.Began.Job.Ceiling
	for _, a := range run.Attempts {
		if a.N == wanted && a.Phase != journal.Running && a.Phase != journal.CutOff {
			r.Evidence = a.Evidence
			return r, nil
		}
	}
	r.Running = last != nil && wanted == last.N && journal.Locked(dir)
	at := filepath.Join(dir, fmt.Sprintf("attempt-%d", max(wanted, 0)))
	if _, err := os.Stat(at); err != nil {
		return r, fmt.Errorf("%s has no attempt %d", dir, max(wanted, 0))
	}
	r.Evidence, r.unread, err = c.attemptFolder(at)
	if r.Running && errors.Is(err, errNothingThere) {
		return r, nil // it has just begun
	}
	return r, err
}

// runIn is the directory itself if it is a run of gpurun, else the newest run below it (a
// job's, those of all jobs, or those of a working directory); empty for none.
func runIn(dir string) string {
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

// headed is how many bytes of saved output are searched for gpurun's first line.
const headed = 64 << 10

// firstLine matches gpurun's first line about a job: its devices, and the memory limit of each rank.
var firstLine = lazy.Regexp(
	`(?m)^gpurun: job .*, (CPU|\d+ × [^,\r\n]+)(?:, at most (\d+(?:\.\d+)?) ([KMGT])iB in each rank)?\r?$`)

// An outputHead keeps the first bytes that are written to it.
type outputHead struct{ text bytes.Buffer }

func (h *outputHead) Write(p []byte) (int, error) {
	h.text.Write(p[:min(len(p), max(headed-h.text.Len(), 0))])
	return len(p), nil
}

// job is what gpurun's first line shows: the accelerator, empty if there is no such line, and the memory limit of
// each rank on the CPU, 0 for none.
func (h *outputHead) job() (accelerator string, ceiling int64) {
	m := firstLine().FindSubmatch(h.text.Bytes())
	switch {
	case m == nil:
		return "", 0
	case string(m[1]) != "CPU":
		return "cuda", 0
	case m[3] == nil:
		return "cpu", 0
	}
	number, _ := strconv.ParseFloat(string(m[2]), 64)
	return "cpu", int64(number * float64(int64(1)<<map[byte]int{'K': 10, 'M': 20, 'G': 30, 'T': 40}[m[3][0]]))
}

// setCeiling sets the memory limit of a file's job: from the journal of the run directory that
// the file is in, or from gpurun's first line in saved output.
func (a *Artifacts) setCeiling(name string, output *outputHead) {
	if dir := filepath.Join(filepath.Dir(name), "..", ".."); name != "-" && isFile(filepath.Join(dir, journal.File)) {
		events, _ := journal.Read(dir) // without it there is no limit
		run := journal.RunOf(events)
		a.Ceiling = run.Began.Job.Ceiling
		for _, attempt := range run.Attempts {
			a.Evidence.Accelerator = cmp.Or(attempt.Evidence.Accelerator, a.Evidence.Accelerator)
		}
		return
	}
	accelerator, ceiling := output.job()
	a.Ceiling, a.Evidence.Accelerator = ceiling, cmp.Or(accelerator, a.Evidence.Accelerator)
}

func isFile(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().IsRegular()
}
