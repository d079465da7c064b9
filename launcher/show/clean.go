package show

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/strategy"
)

// CleanDescription is the help of the verb clean.
const CleanDescription = `Removes run directories: of each job it keeps the newest (--keep), and those that ended recently (--older-than).
It never removes a running run, one that cannot be read, or another folder. A run that would continue when it is
started again (retry, cut off) is removed only with --older-than. Checkpoints belong to the job and are not in a run
directory; remembered plans are stored elsewhere, and stay.
With --json: {"dry_run", "removed": [run], "kept": [{"path", "reason"}], "bytes"}, a run as in gpurun runs --json.`

// A Cleaning says which runs are removed.
//
// Remembered plans (the fits) need no run directory.
type Cleaning struct {
	// Age is how long ago a run must have ended. Asked: the user gave it, which includes runs
	// that would continue.
	Age   time.Duration
	Asked bool
	Keep  int  // the newest of each job
	Dry   bool // remove nothing
	Now   time.Time
}

// Cleaned is what was removed, or would be.
type Cleaned struct {
	Dry     bool    `json:"dry_run"`
	Removed []Entry `json:"removed"`
	Kept    []Kept  `json:"kept"`
	Bytes   int64   `json:"bytes"` // of the disk
}

// A Kept is a run that stays.
type Kept struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// The reasons why a run stays.
const (
	keptRunning = "still running"
	keptNewest  = "among the newest of a job (--keep)"
	keptRecent  = "ended recently (--older-than)"
	keptGoesOn  = "would continue when started again"
	keptBroken  = "cannot be read"
)

// Clean removes runs below dir, and the remains of runs that an earlier cleaning did not finish. The error
// names the runs that could not be removed.
func (c Cleaning) Clean(dir string) (Cleaned, error) {
	done := Cleaned{Dry: c.Dry, Removed: []Entry{}, Kept: []Kept{}}
	paths, err := below(dir, isRun)
	if err != nil {
		return done, err
	}
	failed := c.finish(dir, &done)
	seen := map[string]int{} // runs of each job
	for _, r := range look(paths, LookAtRun) {
		job := filepath.Dir(r.Path)
		seen[job]++
		why := c.keeps(r, seen[job])
		if why == "" {
			r.Measure()
			why, err = c.remove(r)
			failed = errors.Join(failed, err)
		}
		switch {
		case why != "":
			done.Kept = append(done.Kept, Kept{r.Path, why})
		case err == nil:
			done.Removed, done.Bytes = append(done.Removed, r), done.Bytes+r.Bytes
		}
	}
	return done, failed
}

// keeps returns why the nth run of a job stays; empty if it is removed.
func (c Cleaning) keeps(r Entry, nth int) string {
	switch {
	case r.Locked:
		return keptRunning
	case nth <= c.Keep:
		return keptNewest
	case c.Now.Sub(r.Ended) < c.Age:
		return keptRecent
	case r.Outcome == Broken || r.Began.IsZero():
		return keptBroken
	case !c.Asked && (r.Outcome == CutOff || r.Outcome == RunState(strategy.Retry)):
		return keptGoesOn
	}
	return ""
}

// errChanged means that the run was resumed since it was read.
var errChanged = errors.New("the run was resumed")

// remove removes a run, or returns why it stays.
func (c Cleaning) remove(r Entry) (why string, err error) {
	if c.Dry {
		return "", nil
	}
	err = journal.Remove(r.Path, func() error {
		if info, err := os.Lstat(filepath.Join(r.Path, journal.File)); err != nil || !info.ModTime().Equal(r.Ended) {
			return cmp.Or(err, errChanged)
		}
		return nil
	})
	switch {
	case errors.Is(err, journal.ErrLocked), errors.Is(err, errChanged):
		return keptRunning, nil
	case errors.Is(err, fs.ErrNotExist): // another cleaning was faster
		return "", nil
	case err != nil:
		return "", fmt.Errorf("%s: %w", r.short(), err)
	}
	return "", nil
}

// finish removes the rest of runs that an earlier cleaning began to remove.
func (c Cleaning) finish(dir string, done *Cleaned) (failed error) {
	left, _ := below(dir, journal.Leftover) // Clean has read the same folders
	for _, path := range left {
		r := Entry{Path: path, Job: filepath.Base(filepath.Dir(path)), Name: filepath.Base(path), Outcome: Broken,
			Broken: "it was being removed"}
		r.Measure()
		if !c.Dry {
			if err := journal.RemoveLeftover(path); err != nil {
				failed = errors.Join(failed, err)
				continue
			}
		}
		done.Removed, done.Bytes = append(done.Removed, r), done.Bytes+r.Bytes
	}
	return failed
}

// WriteTo prints what was removed, and why the others stay.
func (d Cleaned) WriteTo(w io.Writer) (int64, error) {
	var b strings.Builder
	var secrets *mask.Masker
	verb := "removed"
	if d.Dry {
		verb = "would remove"
	}
	for _, r := range d.Removed {
		b.WriteString(secrets.Sprintf("%s %s (%s): %s\n", verb, r.short(), r.Outcome, r.size()))
	}
	fmt.Fprintf(&b, "%s %s, %s", verb, strategy.Count(len(d.Removed), "run"), strategy.GiB(d.Bytes))
	stay := map[string]int{}
	for _, k := range d.Kept {
		stay[k.Reason]++
	}
	for _, reason := range []string{keptRunning, keptNewest, keptRecent, keptGoesOn, keptBroken} {
		if n := stay[reason]; n > 0 {
			fmt.Fprintf(&b, "; %d kept: %s", n, reason)
		}
	}
	b.WriteString("\n")
	n, err := io.WriteString(w, b.String())
	return int64(n), err
}

// ParseAge reads "14d", "2w", or a duration such as "36h".
func ParseAge(text string) (time.Duration, error) {
	for unit, length := range map[string]time.Duration{"d": 24 * time.Hour, "w": 7 * 24 * time.Hour} {
		if number, ok := strings.CutSuffix(text, unit); ok {
			if n, err := strconv.Atoi(number); err == nil && n >= 0 && n < 100_000 {
				return time.Duration(n) * length, nil
			}
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return d, nil
	}
	return 0, errext.Errorf(`write one such as 14d, 2w or 36h`, "%q is not an age", text)
}
