package launcher

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// NewestCheckpoint finds the newest complete checkpoint that a glob matches and
// that was written at or after since, empty where there is none. Names are
// compared with their numbers as numbers (ckpt-90 is older than ckpt-100), equal
// names by the time of writing. The path is as the glob is: relative to dir
// where the glob is. One that is a folder has to hold a match of each of needs.
func NewestCheckpoint(dir, glob string, since time.Time, needs ...string) (string, error) {
	absolute := glob
	if !filepath.IsAbs(glob) {
		absolute = filepath.Join(dir, glob)
	}
	matches, err := filepath.Glob(absolute)
	if err != nil {
		return "", fmt.Errorf("look for checkpoints: %w", err)
	}
	type found struct {
		path string
		at   time.Time
	}
	var complete []found
	for _, path := range matches {
		at, err := written(path, needs)
		if err != nil || at.Before(since) {
			continue
		}
		complete = append(complete, found{path, at})
	}
	if len(complete) == 0 {
		return "", nil
	}
	newest := slices.MaxFunc(complete, func(a, b found) int {
		return cmp.Or(natural(a.path, b.path), a.at.Compare(b.at))
	})
	if filepath.IsAbs(glob) {
		return newest.path, nil
	}
	relative, err := filepath.Rel(dir, newest.path)
	if err != nil {
		return newest.path, nil
	}
	return relative, nil
}

// CompleteCheckpoint returns the path of a checkpoint that somebody names, relative
// to dir or absolute, if it is complete and was written at or after since. The error
// says what it lacks; needs are as in NewestCheckpoint.
func CompleteCheckpoint(dir, path string, since time.Time, needs ...string) (string, error) {
	absolute := path
	if !filepath.IsAbs(path) {
		absolute = filepath.Join(dir, path)
	}
	at, err := written(absolute, needs)
	if err != nil {
		return "", fmt.Errorf("look at the checkpoint %s: %w", path, err)
	}
	if at.Before(since) {
		return "", fmt.Errorf("look at the checkpoint %s: it is older than the run", path)
	}
	return path, nil
}

var errIncomplete = errors.New("the checkpoint is not complete")

// written is when a checkpoint was finished: the newest time of its files. A
// checkpoint that is still being written, or was cut off, is an error.
func written(path string, needs []string) (time.Time, error) {
	var newest time.Time
	files := 0
	err := filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if unfinished(entry.Name()) {
			return errIncomplete
		}
		if entry.IsDir() {
			return wholeFolder(name)
		}
		info, err := os.Stat(name)
		if err != nil {
			return err
		}
		if newest.Before(info.ModTime()) {
			newest = info.ModTime()
		}
		files++
		if filepath.Ext(name) == ".safetensors" {
			return wholeSafetensors(name, info.Size())
		}
		return wholeArchive(name, info.Size())
	})
	if err == nil {
		err = wholeTag(path, needs)
	}
	if err == nil && files == 0 {
		err = errIncomplete
	}
	return newest, err
}

// unfinished recognises names that writers use until a file is whole;
// transformers 5 leaves checkpoint-is-incomplete.txt while it writes.
func unfinished(name string) bool {
	return strings.HasSuffix(name, ".tmp") || strings.HasSuffix(name, ".part") || strings.Contains(name, "incomplete")
}

// wholeArchive refuses an empty file, and a zip archive, as torch.save writes
// them since PyTorch 1.6, that lacks the directory at its end: it was cut off.
func wholeArchive(path string, size int64) error {
	if size == 0 {
		return errIncomplete
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	head := make([]byte, 4)
	if n, _ := f.ReadAt(head, 0); n < 4 || !bytes.Equal(head, []byte("PK\x03\x04")) {
		return nil
	}
	// The record at the end is 22 bytes, and a comment of at most 64 KiB.
	tail := make([]byte, min(size, 22+1<<16))
	if _, err := f.ReadAt(tail, size-int64(len(tail))); err != nil {
		return err
	}
	if !bytes.Contains(tail, []byte("PK\x05\x06")) {
		return errIncomplete
	}
	return nil
}

var digits = regexp.MustCompile(`\d+`)

// natural compares names with runs of digits as numbers.
func natural(a, b string) int {
	x, y := digits.FindAllString(a, -1), digits.FindAllString(b, -1)
	for i := range min(len(x), len(y)) {
		m, err := strconv.ParseUint(x[i], 10, 64)
		n, err2 := strconv.ParseUint(y[i], 10, 64)
		if err == nil && err2 == nil && m != n {
			return cmp.Compare(m, n)
		}
	}
	return 0
}
