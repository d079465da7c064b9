package main

import (
	"os"
	"path/filepath"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/recipes"
)

// checkpoints finds what a job can go on from, by its recipe.
type checkpoints struct {
	recipe  recipes.Recipe
	command recipes.Command
	workdir string
	since   time.Time // attempt 0 began: what is older is not this run's
}

// newest is the newest complete checkpoint of this run, empty without one. The
// framework's own word for which it is comes first.
func (c checkpoints) newest() string {
	if named := c.pointed(); named != "" || c.recipe.FollowsPointer() {
		return named
	}
	glob, ok := c.recipe.ResumeGlob(c.command)
	if !ok {
		return ""
	}
	newest, err := launcher.NewestCheckpoint(c.workdir, glob, c.since, c.recipe.Resume.Needs...)
	if err != nil {
		return "" // an unreadable checkpoint is none to start from
	}
	return newest
}

// pointed is the checkpoint that the framework's pointer file names, if this run
// wrote both; empty where there is none.
func (c checkpoints) pointed() string {
	pointer := c.recipe.Pointer(c.command)
	if pointer == "" {
		return ""
	}
	if !filepath.IsAbs(pointer) {
		pointer = filepath.Join(c.workdir, pointer)
	}
	info, err := os.Stat(pointer)
	if err != nil || info.ModTime().Before(c.since) {
		return ""
	}
	text, err := os.ReadFile(pointer)
	if err != nil {
		return ""
	}
	meant, ok := c.recipe.PointedAt(c.command, string(text))
	if !ok {
		return ""
	}
	named, err := launcher.CompleteCheckpoint(c.workdir, meant, c.since, c.recipe.Resume.Needs...)
	if err != nil {
		return ""
	}
	return named
}
