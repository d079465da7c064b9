package job

import (
	"errors"
	"os"
	"slices"
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// A CheckpointLocation is the place of a job's checkpoints.
type CheckpointLocation struct {
	// Dir is the folder from which relative paths count.
	Dir string
	// Glob matches complete checkpoints; empty where none is known.
	Glob string
	// Pointer is the file in which the framework names the newest one; empty where it writes
	// none. Only: nothing but the pointer counts.
	Pointer string
	Only    bool
	// Needs are globs of files without which a checkpoint that is a folder is not complete.
	Needs []string
	// Meant is the checkpoint by the pointer's text; false for none.
	Meant func(text string) (path string, ok bool)
}

// Newest is the newest complete checkpoint that was written at or after since, the start of a
// run's attempt 0; empty without one. The one that the framework names comes first.
func (s CheckpointLocation) Newest(since time.Time) string {
	if named := s.pointed(since); named != "" || s.Only {
		return named
	}
	if s.Glob == "" {
		return ""
	}
	newest, _ := NewestCheckpoint(s.Dir, s.Glob, since, s.Needs...) // an unreadable checkpoint is none to start from
	return newest
}

// Complete reports whether a checkpoint that this run wrote still exists and is complete.
func (s CheckpointLocation) Complete(path string, since time.Time) bool {
	_, err := CompleteCheckpoint(s.Dir, path, since, s.Needs...)
	return err == nil
}

// Written is when the newest part of a checkpoint was written, the zero time where
// that cannot be seen.
func (s CheckpointLocation) Written(path string) time.Time {
	return lastWritten(belowFolder(s.Dir, path), time.Now().Add(patience))
}

// None is why the glob matches no checkpoint.
func (s CheckpointLocation) None(since time.Time) string {
	until := time.Now().Add(patience)
	matches, err := search(belowFolder(s.Dir, s.Glob), mostNames, until)
	late := func(path string) bool {
		return time.Now().After(until) || !strategy.WrittenBefore(lastWritten(path, until), since)
	}
	switch {
	case errors.Is(err, ErrTooManyFiles), errors.Is(err, ErrSlowSearch):
		return s.Glob + " matches too much: " + err.Error()
	case err != nil || len(matches) == 0:
		return "nothing matches " + s.Glob
	case !slices.ContainsFunc(matches, late):
		return "what matches " + s.Glob + " is older than this run"
	}
	return "nothing that matches " + s.Glob + " is complete"
}

// pointed is the checkpoint that the framework's pointer file names, if this run wrote both;
// empty for none.
func (s CheckpointLocation) pointed(since time.Time) string {
	if s.Pointer == "" {
		return ""
	}
	info, err := os.Stat(s.Pointer)
	if err != nil || strategy.WrittenBefore(info.ModTime(), since) {
		return ""
	}
	text, err := os.ReadFile(s.Pointer)
	if err != nil {
		return ""
	}
	meant, ok := s.Meant(string(text))
	if !ok || !s.Complete(meant, since) {
		return ""
	}
	return meant
}
