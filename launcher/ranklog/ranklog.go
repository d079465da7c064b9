// Package ranklog is the log of one stream of a rank: a file with a cap, of which the head
// and the tail are kept, and what reads it, also while it grows.
//
// A log is stdout.log. Once that holds a quarter of the cap it stays as it is, and what
// follows goes to parts beside it, a quarter of the cap each, of which the newest three are
// kept: stdout.log.tail-<head>-<from>, head being the bytes of stdout.log and from the place
// in the stream where the part begins. Nothing is ever moved while a rank writes, so that
// no rank waits for it, and a kill at any time leaves whole files. When the stream has
// ended, head and parts become one stdout.log, in which a line tells where it was cut and
// how much; where that cannot be done, for want of room or time, the parts stay.
package ranklog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Least is the smallest cap, in bytes.
const Least = 4 << 10

// markFormat has one length for every count.
const markFormat = "\n[gpurun: %19d bytes cut out here]\n"

func mark(n int64) []byte { return fmt.Appendf(nil, markFormat, n) }

var markLength = int64(len(mark(0)))

// marked is what a mark at a place of a file counts; false where there is none.
func marked(f io.ReaderAt, at int64) (int64, bool) {
	text, n := make([]byte, markLength), int64(0)
	if _, err := f.ReadAt(text, at); err != nil {
		return 0, false
	}
	if _, err := fmt.Sscanf(string(text[1:]), markFormat[1:], &n); err != nil || n < 0 {
		return 0, false
	}
	return n, bytes.Equal(text, mark(n))
}

// A part is one file of the tail.
type part struct {
	path string
	head int64 // bytes of the log's first file
	from int64 // where in the stream the part begins
}

const tailInfix = ".tail-"

func tailOf(path string, head, from int64) part {
	return part{fmt.Sprintf("%s%s%015d-%015d", path, tailInfix, head, from), head, from}
}

// mostNames is how many names of a folder are looked at: the job may write there, too.
const mostNames = 100_000

// tailsOf are the parts of a log beside its first file, in order.
func tailsOf(path string) ([]part, error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	var found []part
	for seen := 0; seen < mostNames; {
		names, err := dir.Readdirnames(1000)
		for _, name := range names {
			p := part{path: filepath.Join(filepath.Dir(path), name)}
			numbers, ok := strings.CutPrefix(name, filepath.Base(path)+tailInfix)
			if n, _ := fmt.Sscanf(numbers, "%d-%d", &p.head, &p.from); ok && n == 2 && tailOf(path, p.head, p.from) == p && regular(p.path) {
				found = append(found, p)
			}
		}
		if seen += len(names); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			slices.SortFunc(found, func(a, b part) int { return int(max(-1, min(1, a.from-b.from))) })
			return found, err
		}
	}
	return nil, fmt.Errorf("%s has too many files", filepath.Dir(path))
}

// regular reports whether a path is that of a file, and no link: the job can make what it
// likes beside its logs.
func regular(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().IsRegular()
}
