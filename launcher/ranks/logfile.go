package ranks

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"
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

// A logWriter is a *ranklog.Writer.
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
