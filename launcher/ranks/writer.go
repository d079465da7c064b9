package ranks

import (
	"bytes"
	"errors"
	"github.com/gpurun/gpurun/launcher/system"
	"os"
	"time"
)

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
