package ranks

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/launcher/system"
)

// A LogReader reads a log from its beginning, and continues with what is added later: io.EOF
// means that there is no more yet. In place of bytes that were cut out before it read them, it returns
// a line with their number. It is for one goroutine.
type LogReader struct {
	path  string
	first os.FileInfo // of the log's first file
	file  *os.File    // that is being read
	at    int64       // in it
	pos   int64       // in the stream
	from  int64       // where the file begins in the stream
	tail  bool        // the file is one of the tail
	head  int64       // bytes of the first file, once there is another; else 0
	end   bool        // no file follows
	mark  []byte      // to be read before the file
}

// OpenLog opens the log at path. It follows no link. The error is fs.ErrNotExist where there
// is no log yet.
func OpenLog(path string) (*LogReader, error) {
	f, err := system.OpenFile(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	r := &LogReader{path: path, file: f, from: -1}
	if r.first, err = f.Stat(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return r, nil
}

// Close closes the log.
func (r *LogReader) Close() error { return r.file.Close() }

// Read implements io.Reader.
func (r *LogReader) Read(p []byte) (int, error) {
	for {
		if len(r.mark) > 0 {
			n := copy(p, r.mark)
			r.mark = r.mark[n:]
			return n, nil
		}
		if n, err := r.more(p); n > 0 || err != nil || r.end || len(p) == 0 {
			return n, eof(n, err)
		}
		next, err := r.next()
		if err != nil || next == nil {
			return 0, eof(0, err)
		}
		if n, err := r.more(p); n > 0 || err != nil { // it was added before the next file was there
			return n, eof(n, err)
		}
		if err := next(); err != nil {
			return 0, err
		}
	}
}

func eof(n int, err error) error {
	if n == 0 && err == nil {
		return io.EOF
	}
	return err
}

// more continues to read the file. Its end is not an error.
func (r *LogReader) more(p []byte) (int, error) {
	n, err := r.file.ReadAt(p, r.at)
	r.at, r.pos = r.at+int64(n), r.pos+int64(n)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// next finds the file that follows, and returns a function that moves there; nil for none yet.
func (r *LogReader) next() (func() error, error) {
	tails, err := tailsOf(r.path)
	if err != nil {
		return nil, err
	}
	whole, err := os.Lstat(r.path)
	if err != nil {
		return nil, err
	}
	if !os.SameFile(whole, r.first) { // they were joined
		return r.joined, nil
	}
	for _, p := range tails {
		if p.from > r.from && p.from >= r.pos && whole.Size() <= p.head { // else the file has it
			return func() error { return r.open(p) }, nil
		}
	}
	return nil, nil
}

// open moves to a tail file. One that was removed meanwhile is skipped.
func (r *LogReader) open(p tailFile) error {
	f, err := system.OpenFile(p.path, os.O_RDONLY)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	r.leave()
	r.to(f, 0, p.from)
	r.from, r.tail = p.from, true
	return nil
}

// leave records the length of the first file at its end.
func (r *LogReader) leave() {
	if !r.tail {
		r.head = r.pos
	}
}

// to moves to a position in a file, and in the stream.
func (r *LogReader) to(f *os.File, at, pos int64) {
	_ = r.file.Close() // it was only read
	if pos > r.pos {
		r.mark = mark(pos - r.pos)
	}
	r.file, r.at, r.pos = f, at, pos
}

// joined moves to the same position of the stream in the joined file.
func (r *LogReader) joined() error {
	f, err := system.OpenFile(r.path, os.O_RDONLY)
	if err != nil {
		return err
	}
	r.leave()
	at, from := r.head, r.head // where the tail begins, in the file and in the stream
	if cut, ok := marked(f, r.head); ok {
		at, from = at+markLength, from+cut
	}
	r.end, r.from = true, math.MaxInt64
	if r.pos > from {
		at, from = at+r.pos-from, r.pos
	}
	r.to(f, at, from)
	return nil
}

// mostFolders is the largest number of entries read from a folder: no launch has as many ranks.
const mostFolders = 1 << 16

// LogFolders returns the folders of an attempt's ranks that are visible here, by rank: rank<k> of
// node 0, and node-<n>/rank<k> of each other node.
func LogFolders(attempt string) map[int]string {
	all := NumberedFolders(attempt, "rank")
	nodes := NumberedFolders(attempt, "node-")
	for _, n := range slices.Sorted(maps.Keys(nodes)) {
		for rank, path := range NumberedFolders(nodes[n], "rank") {
			if all[rank] == "" && len(all) < mostFolders {
				all[rank] = path
			}
		}
	}
	return all
}

// LogFolder returns the folder of one rank of an attempt; for a rank that is not visible here, the folder
// on node 0.
func LogFolder(attempt string, rank int) string {
	own := fmt.Sprintf("rank%d", rank)
	path := filepath.Join(attempt, own)
	if IsLogFolder(path) {
		return path
	}
	nodes := NumberedFolders(attempt, "node-")
	for _, n := range slices.Sorted(maps.Keys(nodes)) {
		if other := filepath.Join(nodes[n], own); IsLogFolder(other) {
			return other
		}
	}
	return path
}

// NumberedFolders returns the folders in dir whose name is a prefix and a number, without links; none if
// dir cannot be read.
func NumberedFolders(dir, prefix string) map[int]string {
	all := map[int]string{}
	entries, _ := system.ListFolder(dir, mostFolders) // those that can be read
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), prefix)
		if n, err := strconv.Atoi(rest); ok && err == nil && n >= 0 && strconv.Itoa(n) == rest && e.IsDir() {
			all[n] = filepath.Join(dir, e.Name())
		}
	}
	return all
}

// IsLogFolder reports whether a path is a folder, and not a link that the job made.
func IsLogFolder(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}
