package journal

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/strategy"
)

// A Search says which run directory a run has.
type Search struct {
	// Named is the one that the user named, empty for none.
	Named string
	// Root is the folder of the job's runs.
	Root string
	// Scheduler is the scheduler's name for the job, and Restarted says that this
	// is not the job's first start. They find the run that was cut off.
	Scheduler string
	Restarted bool
}

// Find gives the path of the run directory: the named one, or the one that a
// scheduler's restart of the same job left behind, or a new one, which is not made.
func (s Search) Find() (string, error) {
	if s.Named != "" {
		return filepath.Abs(s.Named)
	}
	if s.Scheduler != "" && s.Restarted {
		runs, err := Runs(s.Root)
		if err != nil {
			return "", launcher.RunDirError(s.Root, err)
		}
		for _, dir := range slices.Backward(runs) {
			if events, err := Read(dir); err == nil && scheduler(events) == s.Scheduler {
				return dir, nil
			}
		}
	}
	tail := make([]byte, 2)
	if _, err := rand.Read(tail); err != nil {
		return "", fmt.Errorf("name the run: %w", err)
	}
	return filepath.Join(s.Root, time.Now().UTC().Format("20060102-150405-")+hex.EncodeToString(tail)), nil
}

// scheduler is the name that the first start of a run journaled for its job.
func scheduler(events []launcher.Event) string {
	for _, e := range events {
		if b, ok := e.(launcher.Began); ok {
			return b.Scheduler
		}
	}
	return ""
}

// OpenRun is Open for a run, whose journal has to be in order: an error carries the exit
// code and the hint for people. That is 2 where the directory is in use or somebody
// else's, written by a newer gpurun or changed since, 74 where the system refuses it.
func OpenRun(dir string, shown func(launcher.Event)) (*Journal, []launcher.Event, error) {
	j, events, err := Open(dir, shown)
	var misplaced *launcher.Misplaced
	if err == nil && errors.As(launcher.CheckOrder(events), &misplaced) {
		err = errors.Join(&Unreadable{Path: filepath.Join(dir, File), Line: misplaced.Event + 1, Err: misplaced.Err}, j.Close())
	}
	var unreadable *Unreadable
	switch {
	case err == nil:
		return j, events, nil
	case errors.Is(err, ErrLocked):
		err = errext.WithCode(errext.Errorf("wait for it, or name another --run-dir", "the run directory %s is in use: %w", dir, err), strategy.CodeUsage)
	case errors.Is(err, errNotRegular), errors.Is(err, errTooLarge):
		err = errext.WithCode(errext.WithHint(err, "name another --run-dir, or none for a new run"), strategy.CodeUsage)
	case errors.As(err, &unreadable):
		err = errext.WithCode(errext.WithHint(err, unreadable.Hint()), strategy.CodeUsage)
	}
	return nil, nil, launcher.RunDirError(dir, err)
}
