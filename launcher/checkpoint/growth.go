package checkpoint

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// What one look at the checkpoints reads at most. Those written last come first, so that
// of more than that the one that is being written is still seen.
const (
	lookFolders = 16   // that a glob with several wildcards leads to
	lookEntries = 4096 // of one folder
	lookFiles   = 4096 // in all
)

// Growing takes a look at what there is of checkpoints, complete or not, and returns how
// to find out whether more has been written since: a function that looks again. A save in
// progress shows in names that only resemble those of complete checkpoints
// (tmp-checkpoint-500, ckpt-5.pt.part), so that these count too. It compares sizes and
// times with each other and with no clock, which a file server may not share. Each look
// is bounded, and ends early with ctx.
func (s Location) Growing(ctx context.Context) (grown func(context.Context) bool) {
	before := s.look(ctx)
	return func(ctx context.Context) bool {
		now := s.look(ctx)
		return ctx.Err() == nil && (now.bytes > before.bytes || now.files > before.files || now.newest.After(before.newest))
	}
}

// Size is what a checkpoint takes, in bytes, as far as one look sees.
func (s Location) Size(ctx context.Context, path string) int64 {
	path = s.absolute(path)
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

func (s Location) look(ctx context.Context) amount {
	var all []entry
	switch {
	case s.Glob != "":
		all = resembling(s.absolute(s.Glob))
	case s.Pointer != "":
		all = entriesOf(filepath.Dir(s.absolute(s.Pointer)), func(string) bool { return true })
	}
	var sum amount
	sum.add(ctx, all)
	return sum
}

func (s Location) absolute(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(s.Dir, path)
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
		all = append(all, entriesOf(folder, func(entry string) bool {
			ok, _ := filepath.Match("*"+name+"*", entry) // a bad pattern was refused long ago
			return ok
		})...)
	}
	return all
}

// entriesOf are the entries of a folder with the names that are wanted.
func entriesOf(folder string, wanted func(name string) bool) []entry {
	f, err := os.Open(folder)
	if err != nil {
		return nil
	}
	defer f.Close()
	listed, _ := f.ReadDir(lookEntries) // what can be read counts
	var all []entry
	for _, e := range listed {
		if !wanted(e.Name()) {
			continue
		}
		if info, err := e.Info(); err == nil { // else it has just been removed
			all = append(all, entry{filepath.Join(folder, e.Name()), info})
		}
	}
	return all
}

// add counts files, those in folders too.
func (a *amount) add(ctx context.Context, all []entry) {
	slices.SortFunc(all, func(a, b entry) int {
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
			a.add(ctx, entriesOf(e.path, func(string) bool { return true }))
		case e.info.Mode().IsRegular():
			a.bytes += e.info.Size()
		}
	}
}
