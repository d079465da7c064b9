package runs

import (
	"os"
	"path/filepath"
	"syscall"
)

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
