package artifacts

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
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

// headed is how far into saved output gpurun's first line is looked for.
const headed = 64 << 10

// firstLine is what gpurun says of a job that trains on the CPU under a ceiling.
var firstLine = regexp.MustCompile(`(?m)^gpurun: job .*, CPU, at most (\d+(?:\.\d+)?) ([KMGT])iB in each rank\r?$`)

// A head keeps the first bytes that go through it.
type head struct{ text bytes.Buffer }

func (h *head) Write(p []byte) (int, error) {
	h.text.Write(p[:min(len(p), max(headed-h.text.Len(), 0))])
	return len(p), nil
}

// ceiling is what gpurun held each rank on the CPU to by its own words, 0 for none.
func (h *head) ceiling() int64 {
	m := firstLine.FindSubmatch(h.text.Bytes())
	if m == nil {
		return 0
	}
	number, _ := strconv.ParseFloat(string(m[1]), 64)
	return int64(number * float64(int64(1)<<map[byte]int{'K': 10, 'M': 20, 'G': 30, 'T': 40}[m[2][0]]))
}

// under takes over the ceiling that a file's job had: by the journal of the run directory
// that a rank's log lies in, or by gpurun's own words in saved output.
func (a *Artifacts) under(name string, said *head) {
	if dir := filepath.Join(filepath.Dir(name), "..", ".."); name != "-" && isFile(filepath.Join(dir, journal.File)) {
		events, _ := journal.Read(dir) // without it the file says what it says
		run := runstate.Of(events)
		a.Ceiling = run.Began.Job.Ceiling
		for _, attempt := range run.Attempts {
			a.Evidence.Accelerator = cmp.Or(attempt.Evidence.Accelerator, a.Evidence.Accelerator)
		}
		return
	}
	if a.Ceiling = said.ceiling(); a.Ceiling > 0 {
		a.Evidence.Accelerator = "cpu"
	}
}

func isFile(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().IsRegular()
}
