package system

import (
	"os"
	"path/filepath"
	"time"

	"github.com/gpurun/gpurun/launcher/lazy"
)

// Bounds of Sweep: a job may have filled the folder.
const (
	sweptEntries = 10_000
	sweptDepth   = 8
	sweptAtOnce  = 256
)

// temporary matches the names of files that WriteFile and WriteCopy have not finished.
var temporary = lazy.Regexp(`^\.gpurun-[0-9]+$`)

// SweepFiles removes unfinished files of killed writers that are older than age, in a folder and the folders
// below, top down, without following links. A living writer must not take longer than age. Files that cannot
// be removed do no harm.
func SweepFiles(dir string, age time.Duration) {
	left := sweptEntries
	for level, depth := []string{dir}, 0; len(level) > 0 && depth < sweptDepth; depth++ {
		var below []string
		for _, folder := range level {
			below = append(below, sweepOne(folder, age, &left)...)
		}
		level = below
	}
}

// SweepFolder is like Sweep, but only for one folder.
func SweepFolder(dir string, age time.Duration) {
	left := sweptEntries
	sweepOne(dir, age, &left)
}

// sweepOne sweeps a folder, and returns the folders in it.
func sweepOne(dir string, age time.Duration, left *int) (folders []string) {
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	for *left > 0 {
		entries, err := f.ReadDir(min(*left, sweptAtOnce))
		*left -= len(entries)
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			if e.IsDir() {
				folders = append(folders, path)
				continue
			}
			if !temporary().MatchString(e.Name()) || !e.Type().IsRegular() {
				continue
			}
			if info, err := e.Info(); err == nil && time.Since(info.ModTime()) >= age {
				_ = os.Remove(path)
			}
		}
		if err != nil {
			break
		}
	}
	return folders
}
