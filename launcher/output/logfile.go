package output

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/gpurun/gpurun/launcher/private"
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
	file  *cappedFile   // the goroutine's own

	dropped atomic.Int64 // bytes that found the queue full and are not marked yet
	err     error        // first error; read after done
}

func openLog(path string, most int64, told func(string)) (*logFile, error) {
	f, err := private.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return nil, err
	}
	l := &logFile{
		path: path, told: told, file: &cappedFile{file: f, most: most},
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
	if err := l.file.file.Close(); err != nil {
		l.fail(err)
	}
}

// write writes the mark of what was lost before, then buf. It returns how many
// bytes of the log are missing in the file now.
func (l *logFile) write(lost int64, buf []byte) (int64, error) {
	if lost > 0 {
		mark := fmt.Appendf(nil, "\n[gpurun: %d bytes could not be written here]\n", lost)
		if n, err := l.file.Write(mark); err != nil {
			l.file.undo(n)
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

// A cappedFile keeps the first half of its cap for good and lets the rest slide:
// when it is full, the older half of the rest is cut out. The file on disk is in
// order at all times, and each byte is written at most twice.
type cappedFile struct {
	file *os.File
	most int64
	size int64
	cut  int64 // bytes cut out so far
	head int64 // where the cut is, once there is one
}

// Write appends p, in pieces that fit under the cap.
func (c *cappedFile) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		if c.size >= c.most {
			if err := c.slide(); err != nil {
				return done, err
			}
		}
		piece := p[done:min(len(p), done+int(c.most-c.size))]
		n, err := c.file.WriteAt(piece, c.size)
		c.size += int64(n)
		done += n
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// undo takes back the last n bytes, a mark that was cut short.
func (c *cappedFile) undo(n int) {
	if err := c.file.Truncate(c.size - int64(n)); err == nil {
		c.size -= int64(n)
	}
}

// slide cuts the older half of what follows the head out of a full file. The mark
// has one length for every count, so that it can be written over.
func (c *cappedFile) slide() error {
	if c.head == 0 {
		c.head = c.afterNewline(c.most / 2)
	}
	from := c.afterNewline(c.head + (c.size-c.head)/2)
	lost := from - c.head
	if c.cut > 0 {
		lost -= int64(len(cutMark(0)))
	}
	mark := cutMark(c.cut + lost)
	if _, err := c.file.WriteAt(mark, c.head); err != nil {
		return err
	}
	to := c.head + int64(len(mark))
	n, err := io.Copy(io.NewOffsetWriter(c.file, to), io.NewSectionReader(c.file, from, c.size-from))
	if err != nil {
		return err
	}
	c.cut, c.size = c.cut+lost, to+n
	return c.file.Truncate(c.size)
}

// afterNewline returns the start of the first line at or after an offset, or the
// offset itself if no line starts soon.
func (c *cappedFile) afterNewline(off int64) int64 {
	var near [4096]byte
	n, err := c.file.ReadAt(near[:min(int64(len(near)), c.most/16)], off)
	if err != nil && !errors.Is(err, io.EOF) {
		return off
	}
	if i := bytes.IndexByte(near[:n], '\n'); i >= 0 {
		return off + int64(i) + 1
	}
	return off
}

func cutMark(n int64) []byte {
	return fmt.Appendf(nil, "\n[gpurun: %19d bytes cut out here]\n", n)
}
