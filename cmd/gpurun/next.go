package main

import (
	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/launcher/journal"
)

// nextWriter writes the next steps of a run, and keeps their diffs in its directory.
func nextWriter(p *prepared, dir string) *job.NextWriter {
	return &job.NextWriter{
		Prepared: p.Prepared, Typed: p.WithoutNumber(p.begun.Args), Dir: dir, From: p.begun.Dir, Mask: p.secrets(),
		Keep: func(n int, diff string) (string, error) { return journal.KeepPatch(dir, n, diff) },
	}
}
