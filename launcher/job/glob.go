package job

import (
	"errors"
	"io"
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

// search is filepath.Glob, and ends after a number of names, and at a time.
func search(pattern string, names int, until time.Time) ([]string, error) {
	if _, err := filepath.Match(pattern, ""); err != nil {
		return nil, err
	}
	g := globber{left: names, until: until}
	return g.expand(pattern)
}

// A globber has a number of names left to look at, until a time.
type globber struct {
	left  int
	until time.Time
}

func (g *globber) expand(pattern string) ([]string, error) {
	if !special(pattern) {
		if _, err := os.Lstat(pattern); err != nil {
			return nil, nil
		}
		return []string{pattern}, nil
	}
	dir, file := filepath.Split(pattern)
	dir = filepath.Clean(dir)
	folders := []string{dir}
	if special(dir) {
		var err error
		if folders, err = g.expand(dir); err != nil {
			return nil, err
		}
	}
	var matches []string
	for _, folder := range folders {
		found, err := g.matching(folder, file)
		if err != nil {
			return nil, err
		}
		matches = append(matches, found...)
	}
	return matches, nil
}

// matching lists the files of a folder that a pattern without a slash matches, in order. A folder
// that does not exist or cannot be read has none.
func (g *globber) matching(dir, pattern string) (found []string, err error) {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, nil
	}
	defer f.Close()
	const batch = 1024
	for {
		names, end := f.Readdirnames(batch)
		if g.left -= len(names); g.left < 0 {
			return nil, ErrTooManyFiles
		}
		if time.Now().After(g.until) {
			return nil, ErrSlowSearch
		}
		for _, name := range names {
			if fits, err := filepath.Match(pattern, name); err != nil {
				return nil, err
			} else if fits {
				found = append(found, filepath.Join(dir, name))
			}
		}
		if end != nil || len(names) == 0 {
			if end != nil && !errors.Is(end, io.EOF) {
				return nil, nil
			}
			slices.Sort(found)
			return found, nil
		}
	}
}

func special(path string) bool { return strings.ContainsAny(path, `*?[\`) }
