// LogWriter and LogReader write and read the log of one stream of a rank: a file with a cap, which
// keeps the head and the tail, and can be read while it grows.
//
// A log is stdout.log. When that has a quarter of the cap it stays unchanged, and the rest goes
// to tail files next to it, a quarter of the cap each, of which the newest three are kept:
// stdout.log.tail-<head>-<from>: head is the length of stdout.log, and from is the position
// in the stream where the file begins. Nothing is moved while a rank writes, so that no rank
// waits, and a kill at any time leaves whole files. At the end of the stream, head and tail
// become one stdout.log, with a line that shows where it was cut and how much; without space or
// time for that, the tail files stay.

package ranks

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

// LeastLog is the smallest cap, in bytes.
const LeastLog = 4 << 10

// markFormat has one length for every count.
const markFormat = "\n[gpurun: %19d bytes cut out here]\n"

func mark(n int64) []byte { return fmt.Appendf(nil, markFormat, n) }

var markLength = int64(len(mark(0)))

// marked returns the number in a mark at a position of a file; false if there is no mark.
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

// A tailFile is one file of the tail.
type tailFile struct {
	path string
	head int64 // bytes of the log's first file
	from int64 // where in the stream the file begins
}

const tailInfix = ".tail-"

func tailOf(path string, head, from int64) tailFile {
	return tailFile{fmt.Sprintf("%s%s%015d-%015d", path, tailInfix, head, from), head, from}
}

// mostNames is the largest number of names read from a folder: the job may write there, too.
const mostNames = 100_000

// tailsOf returns the tail files of a log, in order.
func tailsOf(path string) ([]tailFile, error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	var found []tailFile
	for seen := 0; seen < mostNames; {
		names, err := dir.Readdirnames(1000)
		for _, name := range names {
			p := tailFile{path: filepath.Join(filepath.Dir(path), name)}
			numbers, ok := strings.CutPrefix(name, filepath.Base(path)+tailInfix)
			if n, _ := fmt.Sscanf(numbers, "%d-%d", &p.head, &p.from); ok && n == 2 && tailOf(path, p.head, p.from) == p && regular(p.path) {
				found = append(found, p)
			}
		}
		if seen += len(names); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			slices.SortStableFunc(found, func(a, b tailFile) int { return int(max(-1, min(1, a.from-b.from))) })
			return found, err
		}
	}
	return nil, fmt.Errorf("%s has too many files", filepath.Dir(path))
}

// regular reports whether a path is a file, and not a link that the job made.
func regular(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().IsRegular()
}
