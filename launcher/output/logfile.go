package output

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/gpurun/gpurun/launcher/ranklog"
)

const (
	logQueue    = 256 << 10        // bytes that wait for one file; as many are being written
	logPatience = 2 * time.Second  // how long a stalled disk may hold a rank's output back
	logClose    = 10 * time.Second // how long Wait waits for disks
)

// A logFile is the file of one stream. Its goroutine writes what put hands over.
// A file system that fails or stalls costs bytes of the log, which are counted in
// it once it works again, and never the rank.
type logFile struct {
	path  string
	queue *queue
	done  chan struct{} // closed when the goroutine has ended
	told  func(string)  // tells a person, once
	file  logWriter     // the goroutine's own

	dropped atomic.Int64 // bytes that found the queue full and are not marked yet
	err     error        // first error; read after done
}

// A logWriter is a *ranklog.Writer.
type logWriter interface {
	io.WriteCloser
	// Undo takes back the last n bytes.
	Undo(n int)
}

func openLog(path string, most int64, told func(string)) (*logFile, error) {
	file, err := ranklog.Create(path, most)
	if err != nil {
		return nil, err
	}
	l := &logFile{
		path: path, told: told, file: file,
		queue: newQueue(logQueue, logPatience), done: make(chan struct{}),
	}
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
	defer close(l.done)
	var lost int64
	var buf []byte
	for ok := true; ok; {
		if buf, ok = l.queue.take(buf, func() {}); !ok {
			break
		}
		n, err := l.write(lost, buf)
		lost = n
		if err != nil {
			l.fail(err)
		}
		lost += l.dropped.Swap(0)
		l.queue.moved()
	}
	if lost += l.dropped.Swap(0); lost > 0 {
		if _, err := l.write(lost, nil); err != nil {
			l.fail(err)
		}
	}
	if err := l.file.Close(); err != nil {
		l.fail(err)
	}
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
	if l.err == nil {
		l.err = err
		l.told(fmt.Sprintf("gpurun: cannot write a log, training goes on: %v", err))
	}
}

// close waits until a time for what is queued to be written and the file to be
// closed. A disk that hangs is left behind, and named.
func (l *logFile) close(until time.Time) error {
	l.queue.close()
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-l.done:
	case <-timer.C:
		return fmt.Errorf("write %s: the file system does not answer", l.path)
	}
	if l.err != nil {
		return fmt.Errorf("write rank log: %w", l.err)
	}
	return nil
}
