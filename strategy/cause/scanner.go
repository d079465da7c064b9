package cause

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"
)

const (
	// unitLimit is the number of bytes that are read of one line; the rest is skipped.
	unitLimit = 64 << 10
	// textLimit is the number of bytes of a line that a finding quotes.
	textLimit = 4 << 10
	// writersLimit is the number of writers of one stream that are distinguished.
	writersLimit = 256
	// afterLimit is the number of lines after an out-of-memory error in which the scanner looks
	// for signs that the job continues.
	afterLimit = 20000
	// wordsReach is the largest distance in lines between the job's report of a recovery and the
	// error.
	wordsReach = 60
	// messageReach is the largest number of lines over which a message may be wrapped.
	messageReach = 8
	// weakLimit bounds the weak and the handled findings of one cause in a stream, and
	// loggedLimit all findings that no exception raises: a warning may come with every step, a
	// failed assertion with every thread of a GPU.
	weakLimit   = 4
	loggedLimit = 64
	// raisedLimit bounds the exceptions of a stream: loops raise and catch them.
	raisedLimit = 256
	// handledLimit bounds the errors that wait for a sign that the job continues.
	handledLimit = 8
	// tailLimit is the number of bytes of earlier output that are kept to find the last steps in.
	tailLimit = 16 << 10
	// wentOn is the weight of steps from which a job counts as continuing.
	wentOn = 4
	// startedAgain is the weight of steps, and buffered the number of bytes, after an exception
	// that left the program, from which the program counts as started again: Python may write a
	// full buffer of earlier lines after the traceback.
	startedAgain = 40
	buffered     = 64 << 10
)

// A Scanner reads the output of one stream and reports the findings in it. It keeps a bounded
// part of the output, and its reports do not depend on the way in which the output is cut into
// writes. It is not safe for concurrent use.
type Scanner struct {
	// OnFinding receives each finding as its line ends. Set it before the first Write. A finding
	// whose message continues on further lines, or after which the job continues, is reported
	// again: the same Seq replaces the earlier one.
	OnFinding func(Finding)

	stream  string
	whole   bool   // the text is one exception that the process itself reported
	line    int    // the number of the line that the next byte belongs to, less 1
	partial []byte // the unit that has not ended, up to unitLimit
	beyond  []byte // the end of the part that is not in partial, up to tailLimit
	tail    []byte // recent output that is no part of a traceback
	// remembered counts the bytes that were put into tail. trend is the growth of memory, as read
	// before trendAt.
	remembered, trendAt int
	trend               *Growth
	seq                 int
	// raised counts the exceptions; lastRaised is the number of the last one.
	raised, lastRaised int
	weak               map[Code]int
	logged             map[Code]int
	writers            map[string]*writer
	order              []string // keys of writers, oldest first
	// recovering is the line of the last report of a recovery; 0: none.
	recovering int
	watch      int      // number of units that are all read
	opened     int      // writers whose traceback is open
	last       *writer  // the writer of the last remembered error
	left       int      // the line of the last exception that left the program; 0: none
	leftBy     *writer  // its writer
	redrawn    bool     // a carriage return precedes the line: it is written at once
	hit        int      // the number of the last line with a trigger; 0: none
	from       string   // the key of the writer of all text, of a collector of logs; empty: none
	head       []uint64 // the shapes of the first lines
	torn       *writer  // the writer whose frame a terminal broke at the end of the line before
	tornText   string
	start      start
	lsf        lsf
	// lastStart is the number of the finding that begins start number startsLimit.
	lastStart int
}

// A writer is one process among those that share a stream.
type writer struct {
	traceback traceback
	closed    traceback     // the one that ended last: lines after it belong to it
	since     int           // units since closed ended
	ended     lastException // the exception at the end of closed
	key       string        // of the writer; empty: the only one
	link      link          // between closed and the next traceback
	carry     string        // text that another writer's tag interrupted
	left      bool          // an exception left its program in this start
	pending   []*pending
}

// A pending finding may be reported again.
type pending struct {
	finding Finding
	top     bool // its exception leaves the program
	wraps   wrapping
	units   int  // since it was reported
	bytes   int  // since it was reported
	steps   int  // the weight of the steps since
	well    bool // a line since reported that the training ended well
	last    string
}

// NewScanner returns a scanner for the stream of that name ("stdout", a file's path): the name
// goes into Finding.Stream.
func NewScanner(stream string) *Scanner {
	return &Scanner{stream: stream, watch: headLines, weak: map[Code]int{}, logged: map[Code]int{},
		writers: map[string]*writer{}}
}

// Scan returns the findings in a whole text, each in its last form.
func Scan(stream, text string) []Finding {
	var all []Finding
	s := NewScanner(stream)
	s.OnFinding = func(at Finding) {
		if at.Seq <= len(all) {
			all[at.Seq-1] = at
		} else {
			all = append(all, at)
		}
	}
	s.Write([]byte(text)) // a Scanner's Write never fails
	s.Close()
	return all
}

// From names the writer of the next lines, where a collector of logs has put the output of several
// containers or processes into one stream. Call it between whole lines.
func (s *Scanner) From(writer string) { s.from = writer }

// Write takes the next bytes of the stream. It never fails.
func (s *Scanner) Write(p []byte) (int, error) {
	n := len(p)
	if len(s.partial) > 0 {
		end := separator(p)
		if end < 0 {
			s.hold(p)
			return n, nil
		}
		s.hold(p[:end])
		s.ended(s.partial, s.beyond, p[end])
		s.partial, s.beyond = s.partial[:0], s.beyond[:0]
		p = p[end+1:]
	}
	done := lastSeparator(p) + 1
	s.block(p[:done])
	s.hold(p[done:])
	return n, nil
}

// Close ends the stream: a last line without a newline is read as if it had one.
func (s *Scanner) Close() {
	if len(s.partial) > 0 {
		s.unit(s.partial)
		s.partial, s.beyond = s.partial[:0], s.beyond[:0]
	}
	for _, key := range s.order {
		if w := s.writers[key]; w.carry != "" {
			text := w.carry
			w.carry = ""
			s.text(w, segment{key: key, rank: keyRank(key), text: text})
		}
	}
	if s.seq == s.start.begins.Seq {
		s.lastWords()
	}
	for _, key := range s.order {
		s.cutOff(s.writers[key])
	}
	for _, key := range s.order {
		s.writers[key].close(s)
	}
	s.endsBare()
}

// cutOff reports the traceback in which the writer's output ends.
func (s *Scanner) cutOff(w *writer) {
	t := &w.traceback
	if !t.open || !t.header || !t.top || t.ignored || t.thread || t.quoted || t.quiet > 1 {
		return
	}
	s.seq++
	s.give(Finding{
		Code: Unknown, Weight: WeightSymptom, Raised: true, Top: true, Remarks: []Remark{SaysCut}, Phase: t.tracker.result(),
		Rank:  keyRank(w.key),
		Start: s.start.number, Stream: s.stream, Seq: s.seq, Line: s.line, Text: strings.TrimSpace(t.lines[len(t.lines)-1]),
		Traceback: t.kept(),
	})
}

// close reports again the exception with which the writer's output ends.
func (w *writer) close(s *Scanner) {
	for _, p := range slices.Backward(w.pending) {
		if p.top && p.finding.Weight == WeightCause && p.steps == 0 && !p.well && p.units <= wordsReach {
			p.finding.Last = true
			s.give(p.finding)
			return
		}
	}
}

// lastWords reports the exception in the last line of output in which nothing else was seen:
// saved output may lack its traceback.
func (s *Scanner) lastWords() {
	tail := string(last(s.tail))
	text := strings.TrimRight(tail, " \t\r\n")
	segs := segments(plain([]byte(text[strings.LastIndexAny(text, "\r\n")+1:])))
	if len(segs) == 0 {
		return
	}
	seg := segs[len(segs)-1]
	class, message, ok := exception(seg.text)
	if !ok && complains(seg.text) {
		s.complain(seg, s.line-strings.Count(tail[len(text):], "\n")+1)
		return
	}
	if !ok || message == "" || class == "Error" || wrapper(class, message) || seg.text[0] == ' ' ||
		!strings.HasSuffix(class, "Error") && !strings.HasSuffix(class, "Exception") {
		return
	}
	line := max(0, s.line-strings.Count(tail[len(text):], "\n"))
	if s.hit > line {
		return // a line with a trigger came after it
	}
	s.line = line
	s.see(s.writer(seg.key), seg, exceptionPattern(class, seg.text, s.whole), true)
}

// keyRank recovers the rank of a writer that mpirun tagged.
func keyRank(key string) int {
	if r, err := strconv.Atoi(strings.TrimPrefix(key, "mpi")); err == nil {
		return r
	}
	return -1
}

// A unit is the text between two separators. A carriage return also ends one: progress bars write
// hundreds of them between two newlines.
func separator(p []byte) int     { return bytes.IndexAny(p, "\r\n") }
func lastSeparator(p []byte) int { return bytes.LastIndexAny(p, "\r\n") }

// ended reads a unit and its separator; beyond is the part that does not fit.
func (s *Scanner) ended(unit, beyond []byte, sep byte) {
	if s.unit(unit) {
		s.remember(beyond)
		s.remember([]byte{sep})
	}
	if s.redrawn = sep == '\r'; !s.redrawn {
		s.line++
	}
}

func (s *Scanner) hold(p []byte) {
	fits := min(unitLimit-len(s.partial), len(p))
	s.partial = append(s.partial, p[:fits]...)
	s.beyond = last(append(s.beyond, last(p[fits:])...))
}

// last returns the end of p that remember would keep.
func last(p []byte) []byte { return p[max(0, len(p)-tailLimit):] }

// block reads units that all have ended. While no traceback or error needs every line, it jumps
// from one trigger to the next.
func (s *Scanner) block(p []byte) {
	escape := -1 // start of the next escape sequence; -1: not searched yet
	base := 0    // the position that escape is relative to
	for len(p) > 0 {
		start := 0
		if s.watch == 0 && s.opened == 0 {
			if escape < base {
				escape = math.MaxInt
				if i := bytes.IndexByte(p, 0x1b); i >= 0 {
					escape = base + i
				}
			}
			hit := min(lines().find(p[:min(len(p), escape-base)]), escape-base)
			if hit >= len(p) {
				s.skip(p)
				return
			}
			start = lastSeparator(p[:hit]) + 1
			s.skip(p[:start])
		}
		end := start + separator(p[start:])
		fits := min(end, start+unitLimit)
		s.ended(p[start:fits], p[fits:end], p[end])
		base += end + 1
		p = p[end+1:]
	}
}

// skip passes over units without a trigger.
func (s *Scanner) skip(p []byte) {
	s.line += bytes.Count(p, []byte{'\n'})
	s.remember(p)
}

func (s *Scanner) remember(p []byte) {
	s.remembered += len(p)
	switch {
	case len(p) >= tailLimit:
		s.tail = s.tail[:0]
	case len(s.tail)+len(p) > 2*tailLimit: // rarely: it moves the tail
		s.tail = append(s.tail[:0], last(s.tail)...)
	}
	s.tail = append(s.tail, last(p)...)
}

// unit reads one line, or one state of a progress bar. It returns true if the line was plain
// output and is in the tail unchanged.
func (s *Scanner) unit(raw []byte) bool {
	if s.watch > 0 {
		s.watch--
	}
	if len(raw) == 0 {
		return true
	}
	hit := lines().find(raw) != math.MaxInt
	if !hit && s.watch == 0 && s.opened == 0 && bytes.IndexByte(raw, 0x1b) < 0 {
		s.remember(raw)
		return true
	}
	if hit {
		s.hit = s.line + 1
	}
	line := plain(raw)
	for _, seg := range segments(line) {
		if s.from != "" {
			seg.key = s.from + " " + seg.key
		}
		w := s.writer(seg.key)
		if seg.cut {
			w.carry = clip(w.carry+seg.text, textLimit)
			continue
		}
		if w.carry != "" {
			seg.text, w.carry = w.carry+seg.text, ""
		}
		s.text(w, seg)
	}
	if s.opened == 0 && !hit {
		s.remember([]byte(line))
		s.remember([]byte{'\n'})
	}
	return false
}

// writer finds the state of one writer, and forgets the oldest if there are too many.
func (s *Scanner) writer(key string) *writer {
	if w, ok := s.writers[key]; ok {
		return w
	}
	if len(s.order) == writersLimit {
		if s.writers[s.order[0]].traceback.open {
			s.opened--
		}
		delete(s.writers, s.order[0])
		s.order = append(s.order[:0], s.order[1:]...)
	}
	w := &writer{since: math.MaxInt / 2, key: key}
	s.writers[key] = w
	s.order = append(s.order, key)
	return w
}

// text reads the text that one writer put on a line. A progress bar does not end its line, so
// the next output may follow on it.
func (s *Scanner) text(w *writer, seg segment) {
	for i := afterBar(seg.text); i > 0; i = afterBar(seg.text) {
		bar := seg
		bar.text, seg.text = seg.text[:i], seg.text[i:]
		s.piece(w, bar)
	}
	s.piece(w, seg)
}

// piece reads a line, or a part of it that another output precedes or follows.
func (s *Scanner) piece(w *writer, seg segment) {
	seg.text = strings.TrimPrefix(seg.text, "^C") // a terminal shows it for Ctrl-C
	if s.report(seg.text) {
		return
	}
	w = s.mend(w, &seg)
	s.noteHead(w, seg.text)
	if s.start.ending != notEnded || len(w.pending) > 0 {
		m := moves(seg.text)
		s.restart(w, seg.text, m)
		s.advance(w, seg.text, m)
	}
	was := w.traceback.open
	if w.continues(seg.text) {
		s.extend(w, seg.text)
		return
	}
	if last := s.last; last != nil && seg.key == "" && s.near(last) && last.continues(seg.text) {
		s.extend(last, seg.text) // a terminal broke the line, and the next one lacks the prefix
		return
	}
	raised := s.follow(w, seg)
	if was != w.traceback.open {
		if was {
			s.opened--
		} else {
			s.opened++
		}
	}
	if raised || w.traceback.isSource(seg.text) || lines().find([]byte(seg.text)) == math.MaxInt {
		return
	}
	p := classify(seg.text)
	if p == nil {
		return
	}
	if class, _, ok := exception(seg.text); ok && quotes(class, seg.text, p, s.whole) {
		return
	}
	s.see(w, seg, p, false)
}

// mend joins the two parts of a frame that a terminal broke before the line number. The second
// part lacks the prefix that launchers put before the first.
func (s *Scanner) mend(w *writer, seg *segment) *writer {
	torn, text := s.torn, s.tornText
	s.torn, s.tornText = nil, ""
	if torn != nil && seg.key == "" {
		seg.text = text + seg.text
		return torn
	}
	if _, rest, ok := strings.Cut(seg.text, `File "`); ok && !strings.Contains(rest, `", line `) &&
		len(rest) <= 2*tracebackWidth {
		s.torn, s.tornText = w, seg.text
		s.watch = max(s.watch, 2)
	}
	return w
}
