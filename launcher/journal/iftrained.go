package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gpurun/gpurun/launcher"

	"github.com/gpurun/gpurun/strategy"
)

// The values of RunSearch.IfTrained for a job of which a run has trained: the new run ends at once with that
// run's verdict, or another run begins, even under the same name.
const (
	SkipTrained = "skip"
	RunTrained  = "run"
)

// ifTrained returns the trained run that replaces a new one, empty for none. It renames the run of the same name where
// another is to begin: after one that has trained, or after a failed one with Fresh.
func (s RunSearch) ifTrained() (string, error) {
	switch {
	case s.IfTrained == SkipTrained:
		return s.newestTrained()
	case s.named() == "":
		return "", nil
	case s.IfTrained == RunTrained && s.trained(s.named()), s.Fresh && s.Restart == 0 && failed(s.named()):
		return "", setAside(s.named())
	}
	return "", nil
}

// newestTrained is the run of the job that has trained: the named one, else the newest; empty for none.
func (s RunSearch) newestTrained() (string, error) {
	runs, err := s.newestFirst()
	if err != nil {
		return "", launcher.RunDirError(s.Root, err)
	}
	if named := s.named(); named != "" {
		runs = append([]string{named}, runs...)
	}
	for _, dir := range runs {
		if s.trained(dir) {
			return filepath.Abs(dir)
		}
	}
	return "", nil
}

// newestFirst are the runs below the job's folder.
func (s RunSearch) newestFirst() ([]string, error) {
	runs, err := Runs(s.Root)
	slices.SortStableFunc(runs, func(a, b string) int { return written(b).Compare(written(a)) })
	return runs, err
}

// exhausted is the newest run of the job, if it ended with no plan left and a new one would, too; else empty.
func (s RunSearch) exhausted() string {
	if s.Settled == nil || s.Fresh {
		return ""
	}
	runs, _ := s.newestFirst() // of a folder that cannot be read there are none
	for _, dir := range runs {
		run, ours := s.ours(dir)
		if !ours {
			continue
		}
		for _, a := range run.Attempts {
			if a.Conditions != "" && outcome(run) == strategy.Exhausted && s.Settled(a.Decided) {
				return dir
			}
		}
		return ""
	}
	return ""
}

// ours is the outline of the run in a directory, and whether it is of this job.
func (s RunSearch) ours(dir string) (*Run, bool) {
	events, _, err := Outline(dir)
	run := RunOf(events)
	return run, err == nil && len(events) > 0 && (s.Digest == "" || run.First.Digest == s.Digest) &&
		launcher.SameFiles(run.First.Files, s.Files)
}

// written is the time of a run's last event.
func written(dir string) time.Time {
	info, err := os.Lstat(filepath.Join(dir, File))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// trained reports whether the run in a directory is of this job and has trained, even if its verdict was not written.
func (s RunSearch) trained(dir string) bool {
	run, ours := s.ours(dir)
	return ours && outcome(run) == strategy.Trained
}

// failed reports whether the run in a directory, of any job, has failed for good. The user may have corrected its
// train.toml, which makes another job of it.
func failed(dir string) bool {
	events, _, err := Outline(dir)
	how := outcome(RunOf(events))
	return err == nil && (how == strategy.Failed || how == strategy.Exhausted)
}

// outcome is how a run ended, even if its verdict was not written; empty where it has not.
func outcome(run *Run) strategy.Outcome {
	if end := run.End(); end != nil {
		return end.Outcome
	}
	if last := run.Last(); last != nil && last.Phase == Exited && last.Evidence.EndedWell() &&
		last.Evidence.CutShort() == "" {
		return strategy.Trained
	}
	return ""
}

// mostAside bounds the runs that are set aside under one name.
const mostAside = 10000

// setAside renames a run directory that no gpurun uses: run becomes run.1, or the first that is free.
func setAside(dir string) error {
	locks, err := holdIdle(dir)
	if err != nil {
		if errors.Is(err, ErrLocked) {
			return nil // opening it fails with the holder's name
		}
		return launcher.RunDirError(dir, err)
	}
	for n := 1; n < mostAside; n++ {
		aside := fmt.Sprintf("%s.%d", filepath.Clean(dir), n)
		if _, err := os.Lstat(aside); errors.Is(err, fs.ErrNotExist) {
			err := os.Rename(dir, aside)
			return launcher.RunDirError(dir, errors.Join(err, locks.Close()))
		}
	}
	return errors.Join(fmt.Errorf("there are %d runs next to %s", mostAside, dir), locks.Close())
}
