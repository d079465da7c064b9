package ranks

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

const (
	readSize  = 64 << 10 // a pipe's usual capacity
	drainSize = 4 << 20  // more than a pipe holds: how much is still read once Wait's context has ended
)

// A stream is one pipe of a rank and the goroutine that drains it.
type stream struct {
	rank *rank
	name string // "stdout" or "stderr"
	pipe *os.File
	log  *logFile
	view *view         // nil: not on the console
	done chan struct{} // closed when the reader has ended

	stopping atomic.Bool // read the available bytes, then end

	// The reader's own.
	scanner  *cause.Scanner
	lines    *lines // nil: nothing is searched for in them
	settings *settings
	now      time.Time // when the current bytes were read
	flush    time.Time // the read deadline that is set
}

func newStream(r *rank, name string, pipe *os.File, log *logFile) *stream {
	s := &stream{
		rank: r, name: name, pipe: pipe, log: log, done: make(chan struct{}),
		scanner: cause.NewScanner(name),
	}
	s.scanner.OnFinding = func(seen cause.Finding) { r.found(name, s.now, seen) }
	if r.observe != nil {
		s.settings = &settings{find: r.observe}
	}
	if r.step != nil || r.observe != nil {
		s.lines = &lines{each: s.line}
	}
	return s
}

// line searches a line for a step and a setting.
func (s *stream) line(text []byte) {
	if len(text) == 0 {
		return
	}
	text = plain(text)
	if n, total, ok := s.rank.stepIn(text); ok {
		s.rank.stepped(s.name, s.now, n, total)
	}
	if setting, ok := s.settings.search(text); ok {
		s.rank.observed(s.name, s.now, setting)
	}
}

// run reads until the last process that holds the write end has closed it.
func (s *stream) run() {
	defer close(s.done)
	buf := make([]byte, readSize)
	for {
		n, err := s.pipe.Read(buf)
		s.now = time.Now()
		if n > 0 {
			s.feed(buf[:n])
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if s.stopping.Load() {
				s.drain(buf)
				break
			}
			s.view.flush(false)
			s.flushAt(time.Time{})
		} else if err != nil {
			s.ended(err)
			break
		}
	}
	s.finish()
}

// feed passes bytes to the log, the console and the scanner. None of them blocks for long.
func (s *stream) feed(p []byte) {
	s.rank.spoke(s.now)
	s.log.put(p)
	if s.view != nil {
		s.flushAt(s.view.add(p, s.now))
	}
	s.scanner.Write(p) // It never fails.
	if s.lines != nil {
		s.lines.add(p)
	}
}

// flushAt wakes the reader at a time, zero for never, even if there is nothing to read.
func (s *stream) flushAt(t time.Time) {
	if t.Equal(s.flush) {
		return
	}
	s.flush = t
	s.deadline(t)
	if s.stopping.Load() {
		s.deadline(time.Unix(1, 0)) // Ours came after that of interrupt.
	}
}

// interrupt makes the reader read what is available and end. Any goroutine may call it.
func (s *stream) interrupt() {
	s.stopping.Store(true)
	s.deadline(time.Unix(1, 0))
}

// deadline sets the pipe's. It fails only for a pipe that is closed, whose reader
// has ended.
func (s *stream) deadline(t time.Time) { _ = s.pipe.SetReadDeadline(t) }

// drain reads what the pipe holds at this moment, past the deadline.
func (s *stream) drain(buf []byte) {
	conn, err := s.pipe.SyscallConn()
	if err != nil {
		return
	}
	for total := 0; total < drainSize; {
		n := 0
		if conn.Control(func(fd uintptr) { n, err = syscall.Read(int(fd), buf) }) != nil {
			return
		}
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			return
		}
		s.feed(buf[:n])
		total += n
	}
}

// ended makes a read error a fact, unless it is the normal end of a pipe or a pseudo-terminal
// (EIO).
func (s *stream) ended(err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.EIO) {
		return
	}
	s.rank.facts.emit(strategy.Fact{
		Time: s.now, Rank: s.rank.global, Source: s.name,
		Content: strategy.Gap(fmt.Sprintf("the rest of the output of rank %d: %v", s.rank.global, err)),
	})
}

// finish passes on what was held back.
func (s *stream) finish() {
	if s.view != nil {
		s.view.flush(true)
	}
	s.scanner.Close()
	if growth := s.scanner.Growth(); growth != nil {
		s.rank.facts.emit(strategy.Fact{Time: s.now, Rank: s.rank.global, Source: s.name, Content: (*strategy.Growth)(growth)})
	}
	if s.lines != nil {
		s.lines.end()
	}
	s.pipe.Close() // Nothing was written through it.
}
