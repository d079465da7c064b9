package main

import (
	"os"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/job"
)

// checkpoints finds what a job can go on from.
type checkpoints struct {
	job.Checkpoints
	since time.Time // attempt 0 began: what is older is not this run's
}

// newest is the newest complete checkpoint of this run, empty without one. The
// framework's own word for which it is comes first.
func (c checkpoints) newest() string {
	if named := c.pointed(); named != "" || c.Only {
		return named
	}
	if c.Glob == "" {
		return ""
	}
	newest, err := launcher.NewestCheckpoint(c.Dir, c.Glob, c.since, c.Needs...)
	if err != nil {
		return "" // an unreadable checkpoint is none to start from
	}
	return newest
}

// pointed is the checkpoint that the framework's pointer file names, if this run
// wrote both; empty where there is none.
func (c checkpoints) pointed() string {
	if c.Pointer == "" {
		return ""
	}
	info, err := os.Stat(c.Pointer)
	if err != nil || info.ModTime().Before(c.since) {
		return ""
	}
	text, err := os.ReadFile(c.Pointer)
	if err != nil {
		return ""
	}
	meant, ok := c.Meant(string(text))
	if !ok {
		return ""
	}
	named, err := launcher.CompleteCheckpoint(c.Dir, meant, c.since, c.Needs...)
	if err != nil {
		return ""
	}
	return named
}
