// This file, search.go and glob.go find the checkpoints that a job has written, and separate complete ones
// from those that were cut off.

package job

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/strategy"
)

// NewestCheckpoint finds the newest complete checkpoint that a glob matches and that was written at or
// after since, empty for none. Names are compared with their numbers as numbers (ckpt-90 is older
// than ckpt-100), equal names by the time of writing. The path is relative to dir where the glob
// is. A folder must hold a match of each of needs.
//
// Only the newest is opened, and those before it only where it is not complete.
func NewestCheckpoint(dir, glob string, since time.Time, needs ...string) (string, error) {
	return newestCheckpoint(opener{os.Open, time.Now().Add(patience)}, dir, glob, since, needs)
}

func newestCheckpoint(o opener, dir, glob string, since time.Time, needs []string) (string, error) {
	matches, err := search(belowFolder(dir, glob), mostNames, o.until)
	if err != nil {
		return "", fmt.Errorf("look for checkpoints: %w", err)
	}
	left := make([]*checkpoint, 0, len(matches))
	for _, path := range matches {
		left = append(left, &checkpoint{path: path, numbers: numbersIn(path), until: o.until})
	}
	slices.SortStableFunc(left, func(a, b *checkpoint) int { return compareCheckpoints(b, a) })
	for _, newest := range left {
		if time.Now().After(o.until) {
			return "", fmt.Errorf("look for checkpoints: %w", ErrSlowSearch)
		}
		if !strategy.WrittenBefore(newest.written(), since) && o.complete(newest.path, needs) == nil {
			return asGlob(dir, glob, newest.path), nil
		}
	}
	return "", nil
}

// asGlob is a match of a glob, relative to dir where the glob is.
func asGlob(dir, glob, match string) string {
	if relative, err := filepath.Rel(dir, match); err == nil && !filepath.IsAbs(glob) {
		return relative
	}
	return match
}

// CompleteCheckpoint returns the path of a named checkpoint, relative to dir or absolute, if it is complete and was
// written at or after since. The error names what it lacks; needs are as in Newest.
func CompleteCheckpoint(dir, path string, since time.Time, needs ...string) (string, error) {
	absolute := belowFolder(dir, path)
	until := time.Now().Add(patience)
	if err := (opener{os.Open, until}).complete(absolute, needs); err != nil {
		return "", fmt.Errorf("look at the checkpoint %s: %w", path, err)
	}
	if strategy.WrittenBefore(lastWritten(absolute, until), since) {
		return "", fmt.Errorf("look at the checkpoint %s: it is older than the run", path)
	}
	return path, nil
}

// belowFolder is a path, of which a relative one counts from dir.
func belowFolder(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// A checkpoint is one that may be the newest.
type checkpoint struct {
	path    string
	numbers []uint64 // in its path
	at      time.Time
	looked  bool // at is known
	until   time.Time
}

// written is when the newest of the checkpoint's files was written. It is read only when it is
// needed: a folder may have many files.
func (c *checkpoint) written() time.Time {
	if !c.looked {
		c.at, c.looked = lastWritten(c.path, c.until), true
	}
	return c.at
}

func compareCheckpoints(a, b *checkpoint) int {
	if by := compareNumbers(a.numbers, b.numbers); by != 0 {
		return by
	}
	return a.written().Compare(b.written())
}

var digits = lazy.Regexp(`\d+`)

// numbersIn are the runs of digits in a name. One that is too long for a number, a hash for
// example, counts as 0.
func numbersIn(name string) []uint64 {
	var all []uint64
	for _, run := range digits().FindAllString(name, -1) {
		n, err := strconv.ParseUint(run, 10, 64)
		if err != nil {
			n = 0 // it is too long
		}
		all = append(all, n)
	}
	return all
}

// compareNumbers compares as many numbers as both have.
func compareNumbers(a, b []uint64) int {
	n := min(len(a), len(b))
	return slices.CompareFunc(a[:n], b[:n], cmp.Compare[uint64])
}
