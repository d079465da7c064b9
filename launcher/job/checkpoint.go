package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/strategy"
)

// This file and complete.go find the checkpoints that a job has written, and separate complete ones
// from those that were cut off.

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

// A CheckpointLocation is the place of a job's checkpoints.
type CheckpointLocation struct {
	// Dir is the folder from which relative paths count.
	Dir string
	// Glob matches complete checkpoints; empty where none is known.
	Glob string
	// Pointer is the file in which the framework names the newest one; empty where it writes
	// none. Only: nothing but the pointer counts.
	Pointer string
	Only    bool
	// Needs are globs of files without which a checkpoint that is a folder is not complete.
	Needs []string
	// Meant is the checkpoint by the pointer's text; false for none.
	Meant func(text string) (path string, ok bool)
}

// Newest is the newest complete checkpoint that was written at or after since, the start of a
// run's attempt 0; empty without one. The one that the framework names comes first.
func (s CheckpointLocation) Newest(since time.Time) string {
	if named := s.pointed(since); named != "" || s.Only {
		return named
	}
	if s.Glob == "" {
		return ""
	}
	newest, _ := NewestCheckpoint(s.Dir, s.Glob, since, s.Needs...) // an unreadable checkpoint is none to start from
	return newest
}

// Complete reports whether a checkpoint that this run wrote still exists and is complete.
func (s CheckpointLocation) Complete(path string, since time.Time) bool {
	_, err := CompleteCheckpoint(s.Dir, path, since, s.Needs...)
	return err == nil
}

// Written is when the newest part of a checkpoint was written, the zero time where
// that cannot be seen.
func (s CheckpointLocation) Written(path string) time.Time {
	return lastWritten(belowFolder(s.Dir, path), time.Now().Add(patience))
}

// None is why the glob matches no checkpoint.
func (s CheckpointLocation) None(since time.Time) string {
	until := time.Now().Add(patience)
	matches, err := search(belowFolder(s.Dir, s.Glob), mostNames, until)
	late := func(path string) bool {
		return time.Now().After(until) || !strategy.WrittenBefore(lastWritten(path, until), since)
	}
	switch {
	case errors.Is(err, ErrTooManyFiles), errors.Is(err, ErrSlowSearch):
		return s.Glob + " matches too much: " + err.Error()
	case err != nil || len(matches) == 0:
		return "nothing matches " + s.Glob
	case !slices.ContainsFunc(matches, late):
		return "what matches " + s.Glob + " is older than this run"
	}
	return "nothing that matches " + s.Glob + " is complete"
}

// pointed is the checkpoint that the framework's pointer file names, if this run wrote both;
// empty for none.
func (s CheckpointLocation) pointed(since time.Time) string {
	if s.Pointer == "" {
		return ""
	}
	info, err := os.Stat(s.Pointer)
	if err != nil || strategy.WrittenBefore(info.ModTime(), since) {
		return ""
	}
	text, err := os.ReadFile(s.Pointer)
	if err != nil {
		return ""
	}
	meant, ok := s.Meant(string(text))
	if !ok || !s.Complete(meant, since) {
		return ""
	}
	return meant
}

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

// CheckCheckpoints searches for a pattern, relative to dir, and returns ErrTooManyFiles, or an error in the pattern.
// A slow file system may be faster later.
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
