package show

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/system"
)

const (
	home = ".gpurun"
	// mostRuns is how many entries of a folder are read, and how many runs are listed.
	mostRuns = 100_000
)

// ListRuns lists the runs below dir, the latest first, with those that cannot be read. dir is a
// working directory, its .gpurun, a job's folder in that or of --log-dir, or a run itself; or a
// folder above the working directories of several jobs. An error means that dir itself cannot
// be read.
func ListRuns(dir string) ([]Entry, error) {
	paths, err := paths(dir)
	return look(paths, LookAtRun), err
}

func paths(dir string) ([]string, error) {
	paths, err := below(dir, isRun)
	if err == nil && len(paths) == 0 {
		paths = farBelow(dir, widestOf(os.Geteuid()))
	}
	return paths, err
}

// atOnce is how many runs are read at a time: a file system on another machine answers each read late.
const atOnce = 8

// look reads the runs at some paths, the latest first; those without a time come last.
func look(paths []string, read func(path string) Entry) []Entry {
	all := make([]Entry, len(paths))
	var next atomic.Int64
	var readers sync.WaitGroup
	for range min(atOnce, len(paths)) {
		readers.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(paths)); i = next.Add(1) - 1 {
				all[i] = read(paths[i])
			}
		})
	}
	readers.Wait()
	slices.SortStableFunc(all, func(a, b Entry) int {
		return cmp.Or(b.Since.Compare(a.Since), strings.Compare(b.Name, a.Name), strings.Compare(a.Path, b.Path))
	})
	return all
}

// below are the absolute paths of the wanted folders: dir itself, those in it, or in its jobs'
// folders.
func below(dir string, wanted func(path string) bool) ([]string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("list the runs: %w", err)
	}
	unwanted := func(path string) bool { return !wanted(path) }
	if isRun(dir) {
		return slices.DeleteFunc([]string{dir}, unwanted), nil
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
			inner, _ = folders(path) // one that cannot be read is skipped
		}
		paths = append(paths, slices.DeleteFunc(inner, unwanted)...)
		if len(paths) >= mostRuns {
			return paths[:mostRuns], nil
		}
	}
	return paths, nil
}

// hasHome reports whether a folder has a .gpurun, which may be a link to a larger disk.
func hasHome(dir string) bool {
	info, err := os.Stat(filepath.Join(dir, home))
	return err == nil && info.IsDir()
}

// folders are the paths of a folder's folders, without links, in order.
func folders(dir string) (paths []string, err error) {
	entries, err := system.ListFolder(dir, mostRuns)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.IsDir() {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	slices.Sort(paths)
	return paths, nil
}

// isRun reports whether a folder looks like a run directory: its journal is a file, and no
// link, and it is not being removed.
func isRun(dir string) bool {
	if journal.Leftover(dir) || journal.IsNode(dir) {
		return false
	}
	info, err := os.Lstat(filepath.Join(dir, journal.File))
	return err == nil && info.Mode().Type()&^fs.ModeIrregular == 0
}

// MeasuredRuns is ListRuns with the size of each run; the list is never nil.
func MeasuredRuns(dir string) ([]Entry, error) {
	paths, err := paths(dir)
	return look(paths, func(path string) Entry {
		r := LookAtRun(path)
		r.Measure()
		return r
	}), err
}

// ListDescription is the help of the verb runs.
const ListDescription = `The latest run comes first. OUTCOME is running, paused (by Ctrl-Z), trained, failed, exhausted, stopped, retry (it
continues when it is started again), cut off (its gpurun was killed: gpurun resume continues it) or broken; PLAN is
what differs between the newest attempt and attempt 0. SIZE is the disk space of the run directory.
With --json: [{"path", "job", "run", "script", "began", "since", "ended", "outcome", "code", "reason", "attempts", "user", "model",
"causes", "in_place", "gpu_time", "changed", "plan", "host", "pid", "locked", "paused", "bytes", "at_least", "broken"}]; unknown
fields are absent. Root lists the runs of all users below a folder such as /home.`

const (
	deepest      = 3       // folders down, in the search for working directories of jobs
	widest       = 2000    // folders that this search reads
	widestAsRoot = 200_000 // root may list the runs of all users
)

func widestOf(uid int) int {
	if uid == 0 {
		return widestAsRoot
	}
	return widest
}

// farBelow are the paths of the runs of jobs whose working directories are below dir, the
// nearest first, within the bounds above.
func farBelow(dir string, widest int) (paths []string) {
	level, seen := []string{dir}, 0
	for range deepest {
		var next []string
		for _, folder := range level {
			inner, _ := folders(folder) // one that cannot be read is skipped
			for _, path := range inner {
				if seen++; seen > widest || len(paths) >= mostRuns {
					return paths
				}
				if hasHome(path) {
					found, _ := below(path, isRun)
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

// Bounds of measuring a run directory: a job may have filled it.
const (
	sizedEntries = 100_000
	sizedDepth   = 32
)

// Measure measures the disk space of the run directory, without following links.
func (r *Entry) Measure() {
	left := sizedEntries
	r.Bytes, r.AtLeast = sizeOf(r.Path, &left, sizedDepth)
}

// sizeOf is the disk space of a folder's files, in bytes; cut says that there were more.
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

// onDisk is the disk space of a file, which is less than its size if it has holes.
func onDisk(info os.FileInfo) int64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Blocks * 512
	}
	return info.Size()
}
