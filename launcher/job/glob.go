package job

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// mostNames is how many names of files a search reads, in about a second; a pattern that needs
// more, such as "/*/*/*/*", was not meant.
const mostNames = 250_000

// patience is how long a search may take: the folders may be on a slow file system, and
// what a pattern matches may hold any number of files.
const patience = 2 * time.Second

// ErrSlowSearch is the error of a search that took too long.
var ErrSlowSearch = errors.New("looking through what it matches takes more than 2s")

// ErrTooManyFiles is the error of a pattern whose folders hold too many files.
var ErrTooManyFiles = errors.New("its folders hold more than 250000 files")

// CheckCheckpoints searches for a pattern, relative to dir, and returns ErrTooManyFiles, or an error in the pattern. A slow
// file system may be faster later.
func CheckCheckpoints(dir, glob string) error {
	_, err := search(belowFolder(dir, glob), mostNames, time.Now().Add(patience))
	if errors.Is(err, ErrSlowSearch) {
		return nil
	}
	return err
}

// search is filepath.Glob, and ends after a number of names, and at a time. The pattern is an absolute path.
func search(pattern string, names int, until time.Time) ([]string, error) {
	if _, err := filepath.Match(pattern, ""); err != nil {
		return nil, err
	}
	files := &boundedFiles{FS: os.DirFS("/"), left: names, until: until}
	matches, err := fs.Glob(files, strings.TrimPrefix(filepath.Clean(pattern), "/"))
	if err = errors.Join(err, files.failed); err != nil {
		return nil, err
	}
	for i := range matches {
		matches[i] = "/" + matches[i]
	}
	return matches, nil
}

// boundedFiles has a number of names left to list, until a time.
type boundedFiles struct {
	fs.FS
	left   int
	until  time.Time
	failed error // why no more is listed
}

// ReadDir lists a folder by name.
func (b *boundedFiles) ReadDir(name string) (all []fs.DirEntry, err error) {
	f, err := os.Open("/" + name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for b.failed == nil && err == nil {
		const batch = 1024
		var some []fs.DirEntry
		some, err = f.ReadDir(batch)
		all = append(all, some...)
		switch b.left -= len(some); {
		case b.left < 0:
			b.failed = ErrTooManyFiles
		case time.Now().After(b.until):
			b.failed = ErrSlowSearch
		}
	}
	if b.failed != nil {
		return nil, b.failed
	}
	slices.SortFunc(all, func(x, y fs.DirEntry) int { return strings.Compare(x.Name(), y.Name()) })
	return all, nil
}
