package private

import (
	"os"
	"path/filepath"
	"regexp"
	"time"
)

// What Sweep looks at: a job may have filled the folder.
const (
	sweptEntries = 10_000
	sweptDepth   = 8
	sweptAtOnce  = 256
)

// temporary is how WriteFile and WriteCopy name a file until it is whole.
var temporary = regexp.MustCompile(`^\.gpurun-[0-9]+$`)

// Sweep removes what writers that were killed have left in a folder and in those below, the
// upper ones first and without following links, as far as it is older than age. Nobody who
// is alive may be writing there for longer than that. What cannot be removed is in nobody's
// way.
func Sweep(dir string, age time.Duration) {
	left := sweptEntries
	for level, depth := []string{dir}, 0; len(level) > 0 && depth < sweptDepth; depth++ {
		var below []string
		for _, folder := range level {
			below = append(below, sweepOne(folder, age, &left)...)
		}
		level = below
	}
}

// SweepFolder is Sweep of one folder, without those below.
func SweepFolder(dir string, age time.Duration) {
	left := sweptEntries
	sweepOne(dir, age, &left)
}

// sweepOne sweeps a folder, and returns those in it.
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
			if !temporary.MatchString(e.Name()) || !e.Type().IsRegular() {
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
