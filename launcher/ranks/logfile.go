package ranks

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/system"
)

const (
	logQueue    = 256 << 10        // bytes that wait for one file; as many are being written
	logPatience = 2 * time.Second  // how long a stalled disk may hold a rank's output back
	logClose    = 10 * time.Second // how long Wait waits for disks
)

// A logFile is the file of one stream. Its goroutine writes what put passes on. A file
// system that fails or stalls costs bytes of the log, which are counted in it once it works
// again; it never holds up the rank.
type logFile struct {
	path  string
	queue *queue
	warn  func(string) // called once
	file  logWriter    // the goroutine's own

	dropped atomic.Int64 // bytes that found the queue full and are not marked yet
	err     error        // first error; read after queue.done
}

// A logWriter is a *LogWriter, or a disk that fails.
type logWriter interface {
	io.WriteCloser
	// Undo takes back the last n bytes.
	Undo(n int)
}

func openLog(path string, most int64, warn func(string)) (*logFile, error) {
	file, err := CreateLog(path, most)
	if err != nil {
		return nil, err
	}
	l := &logFile{path: path, warn: warn, file: file, queue: newQueue(logQueue, logPatience)}
	go l.run()
	return l, nil
}

// put hands bytes to the file. It copies them.
func (l *logFile) put(p []byte) {
	if !l.queue.put(len(p), func(buf []byte) []byte { return append(buf, p...) }) {
		l.dropped.Add(int64(len(p)))
	}
}

func (l *logFile) run() {
	defer close(l.queue.done)
	var lost int64
	l.queue.each(func() {}, func(p []byte) {
		var err error
		lost, err = l.write(lost, p)
		l.fail(err)
		lost += l.dropped.Swap(0)
		l.queue.moved()
	})
	if lost += l.dropped.Swap(0); lost > 0 {
		_, err := l.write(lost, nil)
		l.fail(err)
	}
	l.fail(l.file.Close())
}

// write writes the mark of what was lost before, then buf. It returns how many
// bytes of the log are missing in the file now.
func (l *logFile) write(lost int64, buf []byte) (int64, error) {
	if lost > 0 {
		mark := fmt.Appendf(nil, "\n[gpurun: %d bytes could not be written here]\n", lost)
		if n, err := l.file.Write(mark); err != nil {
			l.file.Undo(n)
			return lost + int64(len(buf)), err
		}
	}
	n, err := l.file.Write(buf)
	return int64(len(buf) - n), err
}

func (l *logFile) fail(err error) {
	if l.err == nil && err != nil {
		l.err = err
		l.warn(fmt.Sprintf("gpurun: cannot write a log, training continues: %v", err))
	}
}

// close waits until the queue is written and the file closed, at most until a time. It abandons a disk that
// hangs, and reports it.
func (l *logFile) close(until time.Time) error {
	if !l.queue.end(time.Until(until), until) {
		return fmt.Errorf("write %s: the file system does not answer", l.path)
	}
	if l.err != nil {
		return fmt.Errorf("write rank log: %w", l.err)
	}
	return nil
}

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
			if n, _ := fmt.Sscanf(numbers, "%d-%d", &p.head, &p.from); ok && n == 2 && tailOf(path, p.head, p.from) == p &&
				regular(p.path) {
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

// parts is the largest number of files of a log: the head and the newest of the tail.
const parts = 4

// joinPatience bounds the time to join the files of a log.
const joinPatience = 3 * time.Second

// A LogWriter writes a log. It is for one goroutine.
type LogWriter struct {
	path  string
	most  int64 // 0: no cap
	file  *os.File
	size  int64      // of the file
	at    int64      // in the stream
	head  int64      // bytes of the first file, once there is a second
	tails []tailFile // that are there
	line  bool       // the file ends within a line
}

// CreateLog creates the log at path, or empties it, with a cap in bytes: at least LeastLog; 0 for
// none.
func CreateLog(path string, most int64) (*LogWriter, error) {
	old, err := tailsOf(path)
	for _, p := range old {
		err = errors.Join(err, os.Remove(p.path))
	}
	if err != nil {
		return nil, err
	}
	_ = dropJoined(path) // it does no harm
	f, err := create(path)
	if err != nil {
		return nil, err
	}
	if most > 0 {
		most = max(most, LeastLog)
	}
	return &LogWriter{path: path, most: most, file: f}, nil
}

func create(path string) (*os.File, error) {
	return system.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
}

// Write appends p. After an error, the next Write continues behind what was written.
func (w *LogWriter) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		n, last := w.piece(p[done:])
		n, err := w.file.WriteAt(p[done:done+n], w.size)
		w.size, w.at, done = w.size+int64(n), w.at+int64(n), done+n
		if n > 0 {
			w.line = p[done-1] != '\n'
		}
		if err != nil {
			return done, err
		}
		if last && done < len(p) {
			if err := w.next(); err != nil {
				return done, err
			}
		}
	}
	return done, nil
}

// limit returns the largest length of a file: all files together with the mark of a cut are as long as the
// cap.
func (w *LogWriter) limit() int64 { return (w.most - markLength) / parts }

// piece returns how much of p goes to the file, and whether the file ends there. Near its limit the file
// ends with a line.
func (w *LogWriter) piece(p []byte) (n int, last bool) {
	room := w.limit() - w.size
	if w.most == 0 || int64(len(p)) < room {
		return len(p), false
	}
	n = int(max(room, 0))
	near := max(0, n-int(min(4096, w.limit()/4)))
	if i := bytes.LastIndexByte(p[near:n], '\n'); i >= 0 {
		return near + i + 1, true
	}
	if near == 0 && !w.line { // the line begins in the next file
		return 0, true
	}
	return n, true
}

// next begins a new tail file, and removes the oldest where there are too many.
func (w *LogWriter) next() error {
	if len(w.tails) == 0 {
		w.head = w.size
	}
	if len(w.tails) == parts-1 {
		if err := os.Remove(w.tails[0].path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		w.tails = w.tails[1:]
	}
	p := tailOf(w.path, w.head, w.at)
	f, err := create(p.path)
	if err != nil {
		return err
	}
	old := w.file
	w.file, w.size, w.tails = f, 0, append(w.tails, p)
	return old.Close()
}

// Undo removes the last n bytes, as far as they are in the newest file, after a partial write.
func (w *LogWriter) Undo(n int) {
	back := min(int64(n), w.size)
	if err := w.file.Truncate(w.size - back); err == nil {
		w.size, w.at = w.size-back, w.at-back
	}
}

// Close ends the log, and joins its files.
func (w *LogWriter) Close() error {
	err := w.file.Close()
	if err == nil && len(w.tails) > 0 {
		_ = w.join(time.Now().Add(joinPatience)) // a Reader joins them otherwise
	}
	return err
}

// errTooSlow is the reason for which a log stays in parts.
var errTooSlow = errors.New("the file system takes too long")

// join writes head, mark and tail into one file, which then replaces the head, and removes the
// tail. The names of the tail's files contain the head's length: a longer head has them
// already.
func (w *LogWriter) join(until time.Time) error {
	whole, err := openJoined(w.path)
	if err != nil {
		return err
	}
	err = appendFile(whole, w.path, until)
	if cut := w.tails[0].from - w.head; err == nil && cut > 0 {
		_, err = whole.Write(mark(cut))
	}
	for _, p := range w.tails {
		if err == nil {
			err = appendFile(whole, p.path, until)
		}
	}
	if err == nil {
		err = nameJoined(whole, w.path)
	}
	err = errors.Join(err, whole.Close())
	if err == nil {
		err = os.Rename(joinedOf(w.path), w.path)
	}
	if err != nil {
		return errors.Join(err, dropJoined(w.path))
	}
	for _, p := range w.tails {
		err = errors.Join(err, os.Remove(p.path))
	}
	return err
}

// appendFile copies a file to the end of another, in pieces, until a deadline.
func appendFile(to *os.File, path string, until time.Time) error {
	from, err := system.OpenFile(path, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer from.Close()
	const piece = 16 << 20
	for time.Now().Before(until) {
		if n, err := io.CopyN(to, from, piece); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("copy %s after %d bytes: %w", path, n, err)
		}
	}
	return errTooSlow
}

// joinedOf returns the name of the joined file before it replaces the head.
func joinedOf(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".joined")
}

// openJoined creates the joined file without a name, so that a kill leaves no file; on
// file systems without such files, with the name.
func openJoined(path string) (*os.File, error) {
	if err := dropJoined(path); err != nil {
		return nil, err
	}
	if f, err := system.OpenFile(filepath.Dir(path), unix.O_TMPFILE|os.O_RDWR); err == nil {
		return f, nil
	}
	return create(joinedOf(path))
}

// nameJoined gives the joined file its name, if it has none.
func nameJoined(f *os.File, path string) error {
	var info unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &info); err != nil || info.Nlink > 0 {
		return err
	}
	own := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	if err := unix.Linkat(unix.AT_FDCWD, own, unix.AT_FDCWD, joinedOf(path), unix.AT_SYMLINK_FOLLOW); err != nil {
		return fmt.Errorf("name %s: %w", joinedOf(path), err)
	}
	return nil
}

// dropJoined removes a joined file that a kill left.
func dropJoined(path string) error {
	if err := os.Remove(joinedOf(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// SweepLogs removes the joined files that kills left in the attempts of a run directory, on file
// systems where they have names. No gpurun may use the directory; where one of an earlier start
// still joins a log on another node, that log stays in parts.
func SweepLogs(run string) {
	for _, attempt := range NumberedFolders(run, "attempt-") {
		for _, rank := range LogFolders(attempt) {
			_ = dropJoined(filepath.Join(rank, "stdout.log")) // they do no harm
			_ = dropJoined(filepath.Join(rank, "stderr.log"))
		}
	}
}
