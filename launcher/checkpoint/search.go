package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// A Location says where the checkpoints of a job are.
type Location struct {
	// Dir is what relative paths count from.
	Dir string
	// Glob matches complete checkpoints; empty where none is known.
	Glob string
	// Pointer is the file in which the framework names the newest one; empty where it
	// writes none. Only says that nothing but the pointer counts.
	Pointer string
	Only    bool
	// Needs are globs of files without which a checkpoint that is a folder is not complete.
	Needs []string
	// Meant is the checkpoint that the pointer's text means; false where it means none.
	Meant func(text string) (path string, ok bool)
}

// Newest is the newest complete checkpoint that was written at or after since, the
// begin of a run's attempt 0; empty without one. The framework's own word for which
// it is comes first.
func (s Location) Newest(since time.Time) string {
	if named := s.pointed(since); named != "" || s.Only {
		return named
	}
	if s.Glob == "" {
		return ""
	}
	newest, err := Newest(s.Dir, s.Glob, since, s.Needs...)
	if err != nil {
		return "" // an unreadable checkpoint is none to start from
	}
	return newest
}

// Complete reports whether a checkpoint that this run wrote, as Newest names it, is
// still there and complete.
func (s Location) Complete(path string, since time.Time) bool {
	_, err := Complete(s.Dir, path, since, s.Needs...)
	return err == nil
}

// Written is when the newest part of a checkpoint was written, the zero time where
// that cannot be seen.
func (s Location) Written(path string) time.Time {
	if !filepath.IsAbs(path) {
		path = filepath.Join(s.Dir, path)
	}
	return lastWritten(path, time.Now().Add(patience))
}

// None says why the glob gives no checkpoint.
func (s Location) None(since time.Time) string {
	glob := s.Glob
	if !filepath.IsAbs(glob) {
		glob = filepath.Join(s.Dir, glob)
	}
	until := time.Now().Add(patience)
	matches, err := search(glob, mostNames, until)
	late := func(path string) bool {
		return time.Now().After(until) || !strategy.WrittenBefore(lastWritten(path, until), since)
	}
	switch {
	case errors.Is(err, ErrTooMany), errors.Is(err, ErrSlow):
		return s.Glob + " matches too much: " + err.Error()
	case err != nil || len(matches) == 0:
		return "nothing matches " + s.Glob
	case !slices.ContainsFunc(matches, late):
		return "what matches " + s.Glob + " is older than this run"
	}
	return "nothing that matches " + s.Glob + " is complete"
}

// pointed is the checkpoint that the framework's pointer file names, if this run
// wrote both; empty where there is none.
func (s Location) pointed(since time.Time) string {
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
	if !ok {
		return ""
	}
	named, err := Complete(s.Dir, meant, since, s.Needs...)
	if err != nil {
		return ""
	}
	return named
}
