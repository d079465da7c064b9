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
	"github.com/gpurun/gpurun/launcher/runstate"
	"github.com/gpurun/gpurun/strategy"
)

// What Search.IfTrained asks for where a run of the job has trained: that it is enough,
// and the run ends at once with its verdict; or that another run begins, also where that
// one has the name.
const (
	SkipTrained = "skip"
	RunTrained  = "run"
)

// ifTrained gives the run that is enough, empty for none, or makes room for another of the
// same name, also where that one has failed and the user wants a fresh one.
func (s Search) ifTrained() (string, error) {
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

// newestTrained is the run of the job that has trained, the one named before all others
// and the newest of these; empty for none.
func (s Search) newestTrained() (string, error) {
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
func (s Search) newestFirst() ([]string, error) {
	runs, err := Runs(s.Root)
	slices.SortFunc(runs, func(a, b string) int { return written(b).Compare(written(a)) })
	return runs, err
}

// exhausted is the newest run of the job, where it ended without a plan that fits and a new
// one would, too; empty where it did not.
func (s Search) exhausted() string {
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

// ours is the run in a directory, as far as its outline says, and whether it is of this job.
func (s Search) ours(dir string) (*runstate.Run, bool) {
	events, _, err := Outline(dir)
	run := runstate.Of(events)
	return run, err == nil && len(events) > 0 && (s.Digest == "" || run.First.Digest == s.Digest) && launcher.SameFiles(run.First.Files, s.Files)
}

// written is when something last happened in a run.
func written(dir string) time.Time {
	info, err := os.Lstat(filepath.Join(dir, File))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// trained reports whether the run in a directory is of this job and has trained, whether
// its verdict was written or not.
func (s Search) trained(dir string) bool {
	run, ours := s.ours(dir)
	return ours && outcome(run) == strategy.Trained
}

// failed reports whether the run in a directory, of whatever job, has failed for good. What is
// mended may be its train.toml, which makes another job of it.
func failed(dir string) bool {
	events, _, err := Outline(dir)
	how := outcome(runstate.Of(events))
	return err == nil && (how == strategy.Failed || how == strategy.Exhausted)
}

// outcome is how a run ended, whether its verdict was written or not; empty where it has not.
func outcome(run *runstate.Run) strategy.Outcome {
	if end := run.End(); end != nil {
		return end.Outcome
	}
	if last := run.Last(); last != nil && last.Phase == runstate.Exited && last.Evidence.EndedWell() && last.Evidence.CutShort() == "" {
		return strategy.Trained
	}
	return ""
}

// mostAside bounds how many runs lie aside under one name.
const mostAside = 10000

// setAside renames a run directory in which no gpurun is at work: run becomes run.1, or
// the first that is free.
func setAside(dir string) error {
	locks, err := holdIdle(dir)
	if err != nil {
		if errors.Is(err, ErrLocked) {
			return nil // opening it says who is at work there
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
	return errors.Join(fmt.Errorf("%d runs lie beside %s", mostAside, dir), locks.Close())
}
