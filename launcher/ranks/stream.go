package ranks

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gpurun/gpurun/launcher/lazy"
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
		s.rank.facts.emit(strategy.Fact{Time: s.now, Rank: s.rank.global, Source: s.name,
			Content: (*strategy.Growth)(growth)})
	}
	if s.lines != nil {
		s.lines.end()
	}
	s.pipe.Close() // Nothing was written through it.
}

// longestLine is how much of a line is searched, in bytes.
const longestLine = 4 << 10

// lines cuts a stream into lines, which end at a newline or a carriage return, and passes on the
// first longestLine bytes of each.
type lines struct {
	each func(line []byte) // must not keep it
	part []byte            // the start of the unfinished line
}

func (l *lines) add(p []byte) {
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		if j := bytes.IndexByte(p[:max(i, 0)], '\r'); j >= 0 {
			i = j
		} else if i < 0 {
			i = bytes.IndexByte(p, '\r')
		}
		if i < 0 {
			l.keep(p)
			return
		}
		if len(l.part) == 0 {
			l.each(p[:min(i, longestLine)])
		} else {
			l.keep(p[:i])
			l.end()
		}
		p = p[i+1:]
	}
}

func (l *lines) keep(p []byte) {
	l.part = append(l.part, p[:min(len(p), longestLine-len(l.part))]...)
}

// end passes on the line that has ended.
func (l *lines) end() {
	l.each(l.part)
	l.part = l.part[:0]
}

// escapes match the escape sequences of terminals: colours, cursor movements, titles.
var escapes = lazy.Regexp(`\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])`)

// plain returns a line without escape sequences.
func plain(line []byte) []byte {
	if bytes.IndexByte(line, 0x1b) < 0 {
		return line
	}
	return escapes().ReplaceAll(line, nil)
}

// settingsHead is how many bytes of a stream are searched for the job's settings: frameworks
// print them before the first step.
const settingsHead = 1 << 20

// settings finds the job's settings in a stream.
type settings struct {
	find func(line string) (strategy.ObservedSetting, bool)
	read int                               // bytes so far
	seen map[strategy.ObservedSetting]bool // without their texts
}

// search searches one line for a new setting.
func (p *settings) search(line []byte) (strategy.ObservedSetting, bool) {
	if p == nil || p.read > settingsHead {
		return strategy.ObservedSetting{}, false
	}
	p.read += len(line) + 1
	setting, ok := p.find(string(line))
	same := setting
	same.Text = ""
	if !ok || p.seen[same] {
		return strategy.ObservedSetting{}, false
	}
	if p.seen == nil {
		p.seen = map[strategy.ObservedSetting]bool{}
	}
	p.seen[same] = true
	return setting, true
}

// observed emits a setting of the job.
func (r *rank) observed(source string, now time.Time, setting strategy.ObservedSetting) {
	r.facts.emit(strategy.Fact{Time: now, Rank: r.global, Source: source, Content: &setting})
}
