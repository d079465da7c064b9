package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/private"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/memory"
)

// mostNames bounds how many names of a rank's folder are looked at.
const mostNames = 4096

// Newest says what the newest snapshot of a rank shows, of those that its processes have
// left in its folder below the attempt's. It reports false where there is none. Of one that
// cannot be read, or not before ctx ends, Missing says so. The measurement is the rank's, nil
// where there is none.
func Newest(ctx context.Context, dir string, rank int, m *memory.Measurement) (strategy.Snapshot, bool) {
	folder := folderOf(dir, rank)
	newest, at := "", time.Time{}
	for _, name := range names(folder) {
		info, err := os.Lstat(filepath.Join(folder, name))
		if err == nil && info.Mode().IsRegular() && !info.ModTime().Before(at) {
			newest, at = name, info.ModTime()
		}
	}
	if newest == "" {
		return strategy.Snapshot{}, false
	}
	var s strategy.Snapshot
	err := errext.Recovered(func() (err error) {
		s, err = read(ctx, filepath.Join(folder, newest), m)
		return err
	})
	switch {
	case err != nil && ctx.Err() != nil:
		s = strategy.Snapshot{Missing: "the allocator's snapshot was not read in time: gpurun reads those of all ranks for a few seconds only"}
	case err != nil:
		s = strategy.Snapshot{Missing: "the allocator's snapshot cannot be read: " + short(err.Error(), 200)}
	}
	s.Rank = rank
	if s.Reserved > 0 {
		s.File = filepath.Join(filepath.Base(folder), newest)
	}
	return s, true
}

// Remove takes away the snapshots of a rank that has outlived them.
func Remove(dir string, rank int) error {
	var failed error
	folder := folderOf(dir, rank)
	for _, name := range names(folder) {
		if err := os.Remove(filepath.Join(folder, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

func folderOf(dir string, rank int) string { return filepath.Join(dir, fmt.Sprintf("rank%d", rank)) }

// names are the snapshots in a folder: snapshot-0.pickle, and snapshot-0-123.pickle of a
// process that the job started itself.
func names(folder string) []string {
	f, err := os.Open(folder)
	if err != nil {
		return nil
	}
	defer f.Close()
	all, _ := f.Readdirnames(mostNames) // what there is, if not all of it
	var found []string
	for _, name := range all {
		stem, ok := strings.CutSuffix(name, ".pickle")
		numbers, its := strings.CutPrefix(stem, "snapshot-")
		if ok && its && strings.Trim(numbers, "0123456789-") == "" {
			found = append(found, name)
		}
	}
	return found
}

func read(ctx context.Context, path string, m *memory.Measurement) (strategy.Snapshot, error) {
	if err := ctx.Err(); err != nil {
		return strategy.Snapshot{}, err
	}
	f, err := private.OpenFile(path, os.O_RDONLY)
	if err != nil {
		return strategy.Snapshot{}, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, mostBytes+1))
	if err != nil {
		return strategy.Snapshot{}, err
	}
	return Analyze(ctx, text, m)
}
