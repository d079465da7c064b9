package job

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// What one look at the checkpoints reads at most, the last written first, so that the one that is
// being written is seen.
const (
	lookFolders = 16   // that a glob with several wildcards leads to
	lookEntries = 4096 // of one folder
	lookFiles   = 4096 // in all
)

// Growing reads what there is of checkpoints, complete or not, and returns a function that reads
// again and reports whether more has been written since. A save in progress shows in names that
// only resemble those of complete checkpoints (tmp-checkpoint-500, ckpt-5.pt.part), so that these
// count, too. Sizes and times are compared with each other and with no clock, which may differ
// from a file server's. Each look is bounded, and ends early with ctx.
func (s CheckpointLocation) Growing(ctx context.Context) (grown func(context.Context) bool) {
	before := s.look(ctx)
	return func(ctx context.Context) bool {
		now := s.look(ctx)
		return ctx.Err() == nil && (now.bytes > before.bytes || now.files > before.files || now.newest.After(before.newest))
	}
}

// Size is the size of a checkpoint in bytes, as far as one look sees.
func (s CheckpointLocation) Size(ctx context.Context, path string) int64 {
	path = belowFolder(s.Dir, path)
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	var sum amount
	sum.add(ctx, []entry{{path, info}})
	return sum.bytes
}

// An amount is how much there is of checkpoints.
type amount struct {
	files  int
	bytes  int64
	newest time.Time // of writing
}

// An entry is one that may be of a checkpoint.
type entry struct {
	path string
	info os.FileInfo
}

func (s CheckpointLocation) look(ctx context.Context) amount {
	var all []entry
	switch {
	case s.Glob != "":
		all = resembling(belowFolder(s.Dir, s.Glob))
	case s.Pointer != "":
		all = entriesOf(filepath.Dir(belowFolder(s.Dir, s.Pointer)), "*")
	}
	var sum amount
	sum.add(ctx, all)
	return sum
}

// resembling are the entries whose names hold one that a glob matches.
func resembling(glob string) []entry {
	folder, name := filepath.Split(glob)
	folders, err := filepath.Glob(filepath.Clean(folder))
	if err != nil {
		return nil
	}
	var all []entry
	for _, folder := range folders[:min(len(folders), lookFolders)] {
		all = append(all, entriesOf(folder, "*"+name+"*")...)
	}
	return all
}

// entriesOf are the entries of a folder that a pattern matches.
func entriesOf(folder, pattern string) []entry {
	f, err := os.Open(folder)
	if err != nil {
		return nil
	}
	defer f.Close()
	listed, _ := f.ReadDir(lookEntries) // what can be read counts
	var all []entry
	for _, e := range listed {
		if wanted, _ := filepath.Match(pattern, e.Name()); !wanted { // a bad pattern was refused before
			continue
		}
		if info, err := e.Info(); err == nil { // else it has just been removed
			all = append(all, entry{filepath.Join(folder, e.Name()), info})
		}
	}
	return all
}

// add counts files, also those in folders.
func (a *amount) add(ctx context.Context, all []entry) {
	slices.SortStableFunc(all, func(a, b entry) int {
		if newer := b.info.ModTime().Compare(a.info.ModTime()); newer != 0 {
			return newer
		}
		return strings.Compare(a.path, b.path)
	})
	for _, e := range all {
		if ctx.Err() != nil || a.files >= lookFiles {
			return
		}
		a.files++
		if e.info.ModTime().After(a.newest) {
			a.newest = e.info.ModTime()
		}
		switch {
		case e.info.IsDir():
			a.add(ctx, entriesOf(e.path, "*"))
		case e.info.Mode().IsRegular():
			a.bytes += e.info.Size()
		}
	}
}
