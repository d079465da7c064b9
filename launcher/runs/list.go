package runs

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/gpurun/gpurun/launcher/journal"
)

const (
	home = ".gpurun"
	// most is how many entries of a folder are looked at: more runs than these nobody lists.
	most = 10_000
)

// List is every run below dir, the latest first: dir is a working directory, its .gpurun,
// a job's folder in that or of --log-dir, or a run itself; or a folder above the working
// directories of several jobs. A run that cannot be read is among them. An error means that
// dir itself cannot be read.
func List(dir string) ([]Run, error) {
	paths, err := directories(dir)
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		paths = farBelow(dir)
	}
	return look(paths), nil
}

// listHere is the same, of dir alone.
func listHere(dir string) ([]Run, error) {
	paths, err := directories(dir)
	return look(paths), err
}

// look looks at the runs at some paths, and puts the latest first.
func look(paths []string) []Run {
	var all []Run
	for _, path := range paths {
		all = append(all, Look(path))
	}
	slices.SortFunc(all, later)
	return all
}

// later puts the run that began last first; one that cannot say when is the oldest.
func later(a, b Run) int {
	return cmp.Or(b.Since.Compare(a.Since), strings.Compare(b.Name, a.Name), strings.Compare(a.Path, b.Path))
}

// directories are the paths of the runs below dir, absolute.
func directories(dir string) ([]string, error) { return below(dir, isRun) }

// leftovers are the paths of what was being removed below dir, absolute.
func leftovers(dir string) ([]string, error) {
	return below(dir, func(path string) bool { return journal.Leftover(path) && holdsRuns(filepath.Dir(path)) })
}

// holdsRuns reports whether a folder is one for runs: below a .gpurun, or, as a job's in
// --log-dir, with a run in it.
func holdsRuns(dir string) bool {
	if slices.Contains(strings.Split(dir, string(filepath.Separator)), home) {
		return true
	}
	inner, _ := folders(dir)
	return slices.ContainsFunc(inner, isRun)
}

// below are the paths of the folders that are wanted: dir itself, those in it, or in its
// jobs' folders.
func below(dir string, wanted func(path string) bool) ([]string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("list the runs: %w", err)
	}
	if isRun(dir) {
		return slices.DeleteFunc([]string{dir}, func(path string) bool { return !wanted(path) }), nil
	}
	if filepath.Base(dir) != home && hasHome(dir) {
		dir = filepath.Join(dir, home)
	}
	outer, err := folders(dir)
	if err != nil {
		return nil, fmt.Errorf("list the runs: %w", err)
	}
	var paths []string
	for _, path := range outer {
		inner := []string{path}
		if !isRun(path) && !journal.Leftover(path) {
			inner, _ = folders(path) // one that cannot be read has no runs for us
		}
		paths = append(paths, slices.DeleteFunc(inner, func(path string) bool { return !wanted(path) })...)
		if len(paths) >= most {
			return paths[:most], nil
		}
	}
	return paths, nil
}

// hasHome reports whether a folder has a .gpurun, which may be a link to a larger disk.
func hasHome(dir string) bool {
	info, err := os.Stat(filepath.Join(dir, home))
	return err == nil && info.IsDir()
}

// folders are the paths of a folder's folders, links left out, in order.
func folders(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(most)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	var paths []string
	for _, e := range entries {
		if e.IsDir() {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	slices.Sort(paths)
	return paths, nil
}

// isRun reports whether a folder looks like a run directory: its journal is a file of its
// own, and no link, and nobody is removing it.
func isRun(dir string) bool {
	if journal.Leftover(dir) || journal.IsNode(dir) {
		return false
	}
	info, err := os.Lstat(filepath.Join(dir, journal.File))
	return err == nil && info.Mode().Type()&^fs.ModeIrregular == 0
}

// Measured is List with the size of each run; the list is never nil.
func Measured(dir string) ([]Run, error) {
	all, err := List(dir)
	for i := range all {
		all[i].Measure()
	}
	return append([]Run{}, all...), err
}

// ListDescription is the help of the verb runs.
const ListDescription = `The latest run comes first. OUTCOME is running, trained, failed, exhausted, stopped, retry (it goes on when it is
started again), cut off (its gpurun was killed: gpurun resume goes on with it) or broken; PLAN is what the newest
attempt runs with other than attempt 0 did. SIZE is what the run directory takes of the disk.
With --json: [{"path", "job", "run", "script", "began", "since", "ended", "outcome", "code", "reason", "attempts", "changed",
"plan", "host", "pid", "locked", "bytes", "at_least", "broken"}]; what is not known is absent.`

const (
	// deepest is how many folders down the working directories of jobs are looked for.
	deepest = 3
	// widest is how many folders are looked at for that.
	widest = 2000
)

// farBelow are the paths of the runs of the jobs whose working directories are below dir,
// the nearest first, as far as a look costs little.
func farBelow(dir string) (paths []string) {
	level, seen := []string{dir}, 0
	for range deepest {
		var next []string
		for _, folder := range level {
			inner, _ := folders(folder) // one that cannot be read has no runs for us
			for _, path := range inner {
				if seen++; seen > widest || len(paths) >= most {
					return paths
				}
				if hasHome(path) {
					found, _ := directories(path)
					paths = append(paths, found...)
				}
				if filepath.Base(path)[0] != '.' {
					next = append(next, path)
				}
			}
		}
		level = next
	}
	return paths
}

// What is looked at of a run directory at most: a job may have filled it.
const (
	sizedEntries = 100_000
	sizedDepth   = 32
)

// Measure finds out what the run directory takes of the disk, without following links.
func (r *Run) Measure() {
	left := sizedEntries
	r.Bytes, r.AtLeast = sizeOf(r.Path, &left, sizedDepth)
}

// sizeOf is what a folder's files take of the disk, in bytes; cut says that not all were
// looked at.
func sizeOf(dir string, left *int, depth int) (bytes int64, cut bool) {
	f, err := os.Open(dir)
	if err != nil {
		return 0, true
	}
	defer f.Close()
	for depth > 0 && *left > 0 {
		entries, err := f.ReadDir(min(*left, 256))
		for _, e := range entries {
			*left--
			if e.IsDir() {
				n, c := sizeOf(filepath.Join(dir, e.Name()), left, depth-1)
				bytes, cut = bytes+n, cut || c
			} else if info, err := e.Info(); err == nil {
				bytes += onDisk(info)
			}
		}
		if err != nil {
			return bytes, cut
		}
	}
	return bytes, true
}

// onDisk is what a file takes: one with holes, or in sparse logs, less than its size.
func onDisk(info os.FileInfo) int64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Blocks * 512
	}
	return info.Size()
}
