package cause

import (
	"bytes"
	"math"
	"strconv"
	"strings"
)

const (
	// unitLimit is how much of one line is read; the rest is passed over.
	unitLimit = 64 << 10
	// textLimit is how much of a line a sighting quotes.
	textLimit = 4 << 10
	// writersLimit is how many writers of one stream are told apart.
	writersLimit = 256
	// afterLimit is for how many lines after an out-of-memory error the scanner
	// looks for signs that the job goes on.
	afterLimit = 20000
	// wordsReach is how far, in lines, the job's own words of recovery may stand
	// from the error that they are about.
	wordsReach = 60
	// messageReach is over how many lines a message may be wrapped.
	messageReach = 8
	// weakLimit bounds the weak and the handled sightings of one cause in a
	// stream, and loggedLimit all that no exception raises: a warning may come
	// with every step, a failed assertion with every thread of a GPU.
	weakLimit   = 4
	loggedLimit = 64
	// handledLimit bounds the errors that wait for a sign that the job goes on.
	handledLimit = 8
	// tailLimit is how much earlier output is kept to find the last step in.
	tailLimit = 4 << 10
	// wentOn is the weight of steps that shows that a job goes on.
	wentOn = 4
)

// A Scanner reads the output of one stream and reports the sightings in it. It
// keeps a bounded amount of what it read, and its reports do not depend on how
// the output is cut into writes. It is not safe for concurrent use.
type Scanner struct {
	// OnSighting receives each sighting as its line ends. Set it before the
	// first Write. A sighting whose message goes on over further lines, or that
	// the job outlives, is given again: the same Seq replaces the earlier one.
	OnSighting func(Sighting)

	stream  string
	line    int    // the number of the line that the next byte belongs to, less 1
	partial []byte // the unit that has not ended, up to unitLimit
	beyond  []byte // the end of what partial left out, up to tailLimit
	tail    []byte // recent output that is no part of a traceback
	seq     int
	weak    map[Code]int
	logged  map[Code]int
	writers map[string]*writer
	order   []string // keys of writers, oldest first
	// recovering is the line of the last words of recovery, 0 for none.
	recovering int
	watch      int // units for which every unit is looked at
	opened     int // writers whose traceback is open
}

// A writer is one process among those that share a stream.
type writer struct {
	traceback traceback
	closed    traceback // the one that ended last: lines after it belong to it
	since     int       // units since closed ended
	carry     string    // text that another writer's tag interrupted
	pending   []*pending
}

// A pending sighting may be given again.
type pending struct {
	sighting Sighting
	top      bool // its traceback leaves the program
	units    int  // since it was given
	weight   int  // of the steps since
	last     string
}

// NewScanner returns a scanner for the stream of that name ("stdout", a file's
// path): the name goes into Sighting.Stream.
func NewScanner(stream string) *Scanner {
	return &Scanner{stream: stream, weak: map[Code]int{}, logged: map[Code]int{}, writers: map[string]*writer{}}
}

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
}

// keyRank recovers the rank of a writer that mpirun tagged.
func keyRank(key string) int {
	if r, err := strconv.Atoi(strings.TrimPrefix(key, "mpi")); err == nil {
		return r
	}
	return -1
}

// A unit is the text between two separators. A carriage return ends one as well:
// progress bars write hundreds of them between two newlines.
func separator(p []byte) int     { return bytes.IndexAny(p, "\r\n") }
func lastSeparator(p []byte) int { return bytes.LastIndexAny(p, "\r\n") }

// ended reads a unit, of which beyond is what does not fit, and its separator.
func (s *Scanner) ended(unit, beyond []byte, sep byte) {
	if s.unit(unit) {
		s.remember(beyond)
		s.remember([]byte{sep})
	}
	if sep == '\n' {
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

// block reads units that all have ended. Where nothing is being followed it
// jumps from one trigger to the next.
func (s *Scanner) block(p []byte) {
	escape := -1 // where the next escape sequence begins, -1 for not yet looked for
	base := 0    // what escape is relative to
	for len(p) > 0 {
		start := 0
		if s.watch == 0 && s.opened == 0 {
			if escape < base {
				escape = math.MaxInt
				if i := bytes.IndexByte(p, 0x1b); i >= 0 {
					escape = base + i
				}
			}
			hit := min(lines.find(p[:min(len(p), escape-base)]), escape-base)
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
	if len(p) >= tailLimit {
		s.tail = append(s.tail[:0], p[len(p)-tailLimit:]...)
		return
	}
	if over := len(s.tail) + len(p) - tailLimit; over > 0 {
		s.tail = append(s.tail[:0], s.tail[over:]...)
	}
	s.tail = append(s.tail, p...)
}

// unit reads one line, or one state of a progress bar. It reports whether the
// unit was plain output, and went to the tail as it is.
func (s *Scanner) unit(raw []byte) bool {
	if s.watch > 0 {
		s.watch--
	}
	if len(raw) == 0 {
		return true
	}
	hit := lines.find(raw) != math.MaxInt
	if !hit && s.watch == 0 && s.opened == 0 && bytes.IndexByte(raw, 0x1b) < 0 {
		s.remember(raw)
		return true
	}
	line := plain(raw)
	for _, seg := range segments(line) {
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

// writer finds the state of one writer, and forgets the oldest where there are
// too many.
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
	w := &writer{since: math.MaxInt / 2}
	s.writers[key] = w
	s.order = append(s.order, key)
	return w
}

// text reads what one writer put on a line.
func (s *Scanner) text(w *writer, seg segment) {
	was := w.traceback.open
	s.advance(w, seg.text)
	if w.continues(seg.text) {
		s.extend(w, seg.text)
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
	if raised {
		return
	}
	if lines.find([]byte(seg.text)) == math.MaxInt {
		return
	}
	p := classify(seg.text)
	if p == nil {
		return
	}
	s.see(w, seg, p, false)
}

// follow feeds the writer's traceback. It reports whether the line ended it and
// was reported.
func (s *Scanner) follow(w *writer, seg segment) bool {
	t := &w.traceback
	text := seg.text
	trimmed := strings.TrimLeft(text, " ")
	switch {
	case strings.HasPrefix(trimmed, "Exception ignored in"), strings.Contains(trimmed, "--- Logging error ---"):
		t.ignored = true
		return false
	case strings.HasPrefix(trimmed, "Exception in thread"):
		t.thread = true
		return false
	case strings.Contains(text, "Traceback (most recent call last)"), strings.Contains(text, "Traceback of TorchScript"):
		t.begin(text)
		return false
	}
	if f, ok := parseFrame(text); ok {
		if !t.open && f.function == "" {
			w.locate(s, f) // pytest names the innermost place last
			return false
		}
		t.frame(f, text)
		return false
	}
	w.since++
	if !t.open {
		return false
	}
	class, message, ok := exception(text)
	if !ok || t.frames == 0 && !t.header || indented(text, t) {
		t.context(text)
		return false
	}
	if wrapper(class, message) {
		ignored, thread := t.ignored, t.thread
		t.begin(text)
		t.ignored, t.thread = ignored, thread
		return false
	}
	t.keep(text)
	s.see(w, seg, exceptionPattern(class, text), true)
	w.closed, w.since = *t, 0
	*t = traceback{}
	return true
}

// indented reports whether a line that looks like an exception stands deeper
// than the traceback's header, as source code does.
func indented(text string, t *traceback) bool {
	columns := len(text) - len(strings.TrimLeft(text, " "))
	if !t.header {
		return columns > 12
	}
	return columns > t.indent
}

// wrapper reports exceptions that only carry another one's traceback, which
// follows: PyTorch's workers, Ray's tasks.
func wrapper(class, message string) bool {
	return strings.HasPrefix(message, "Caught ") && strings.Contains(message, " in ") ||
		strings.Contains(class, "RayTaskError(")
}

// exceptionPattern classifies the line that ends a traceback: by its words, else
// by its class.
func exceptionPattern(class, text string) *pattern {
	if p := classify(text); p != nil && p.role != recovery && p.role != harmless {
		return p
	}
	last := class[strings.LastIndexByte(class, '.')+1:]
	switch last {
	case "KeyboardInterrupt":
		return &pattern{code: Preempted, role: symptom}
	case "SystemExit":
		return &pattern{code: UserError, role: symptom}
	case "MemoryError", "_ArrayMemoryError":
		return &pattern{code: HostOOM, device: "cpu"}
	case "ImportError", "ModuleNotFoundError":
		return &pattern{code: UserError, phase: Load}
	case "ResourceExhaustedError":
		if strings.Contains(class, "errors_impl") || class == last {
			return &pattern{code: CUDAOOM} // TensorFlow
		}
	case "OutOfMemoryError":
		if strings.HasPrefix(class, "torch") || class == last {
			return &pattern{code: CUDAOOM}
		}
	}
	return &pattern{code: UserError}
}

// see reports a sighting of the pattern.
func (s *Scanner) see(w *writer, seg segment, p *pattern, raised bool) {
	if p.role == harmless {
		return
	}
	if p.role == recovery {
		s.recover()
		return
	}
	t := w.traceback
	if !raised && !t.open && w.since <= messageReach {
		t = w.closed // the message goes on under the exception's name
	}
	at := Sighting{
		Code: p.code, Raised: raised && !t.ignored, Symptom: p.role == symptom, Weak: p.role == weak,
		Handled: p.role == outlived, Phase: p.phase, Rank: seg.rank, Device: p.device,
		Stream: s.stream, Line: s.line + 1, Text: clip(strings.TrimSpace(seg.text), textLimit),
	}
	if at.Phase == "" && (t.open || raised || t.frames > 0) {
		at.Phase = t.tracker.result()
	}
	if at.Phase == "" {
		at.Phase = NoPhase
	}
	if raised {
		at.Traceback = append([]string(nil), t.lines...)
	}
	s.refine(&at, &t, raised)
	s.weigh(&at, &t, raised)
	if !s.wanted(&at) {
		return
	}
	s.seq++
	at.Seq = s.seq
	s.give(at)
	if at.Code == CUDAOOM || at.Code == HostOOM || at.Raised && !at.Symptom {
		s.remind(w, at, raised && t.top)
	}
}

// wanted bounds the sightings that a line can bring about again and again.
func (s *Scanner) wanted(at *Sighting) bool {
	if at.Raised {
		return true
	}
	if at.Weak || at.Handled {
		s.weak[at.Code]++
		return s.weak[at.Code] <= weakLimit
	}
	s.logged[at.Code]++
	return s.logged[at.Code] <= loggedLimit
}

// refine reads what the words of some causes tell further.
func (s *Scanner) refine(at *Sighting, t *traceback, raised bool) {
	switch at.Code {
	case CUDAOOM, HostOOM:
		at.Figures = parseFigures(at.Text)
		at.Step = s.lastStep()
		if at.Code == CUDAOOM && t.tracker.pinned && strings.Contains(at.Text, "CUDA error: out of memory") {
			at.Code, at.Device = HostOOM, "" // cudaHostAlloc reports the device's words
		}
		if at.Code == CUDAOOM {
			at.Device = parseDevice(at.Text)
		}
	case DiskFull:
		if t.tracker.shared {
			at.Code = SharedMemory
		}
	case Unknown:
		if i := strings.Index(at.Text, "NVRM: Xid"); i >= 0 {
			if n, ok := xidNumber(at.Text[i:]); ok {
				at.Code, _ = XID(n)
				at.Weak = at.Code == Unknown
			}
		}
	}
}

// xidNumber reads 79 of "NVRM: Xid (PCI:0000:06:00): 79, pid=1234, GPU has …".
func xidNumber(text string) (int, bool) {
	_, rest, ok := strings.Cut(text, "): ")
	if !ok {
		return 0, false
	}
	n := 0
	for n < len(rest) && n < 4 && rest[n] >= '0' && rest[n] <= '9' {
		n++
	}
	v, err := strconv.Atoi(rest[:n])
	return v, err == nil
}

// weigh decides what the surroundings of a line make of it.
func (s *Scanner) weigh(at *Sighting, t *traceback, raised bool) {
	if t.ignored || t.thread && at.Code == UserError {
		at.Weak = true
	}
	// A loader's worker that is killed ends the job only through the exception
	// that its parent raises; a parent that shuts down prints the same words.
	if !raised && strings.Contains(at.Text, "DataLoader worker (") && strings.Contains(at.Text, "signal: Killed") {
		at.Weak = true
	}
	if !raised && (strings.Contains(at.Text, "Warning: ") || at.Code == CUDAOOM && hearsay(at.Text)) {
		at.Weak = true
	}
	if !raised && at.Code == CUDAOOM && s.recovering > 0 && s.line+1-s.recovering <= wordsReach {
		at.Handled = true
	}
}

// hearsay reports whether a line only speaks of running out of memory: advice,
// documentation, a generated text. A message says by how much, or begins where a
// sentence would not: at the line's start, after a colon, a level or a bracket.
func hearsay(text string) bool {
	i := strings.Index(text, "out of memory")
	if i < 0 || strings.Contains(text, "ried to allocate") {
		return false
	}
	head := text[:i]
	for _, w := range []string{"f you ", "void ", "revent", "n case of", " may ", " might ", " could ", "such as", "e.g."} {
		if strings.Contains(head, w) {
			return true
		}
	}
	for _, device := range []string{"CUDA ", "HIP ", "XPU ", "NPU "} {
		if before, ok := strings.CutSuffix(head, device); ok {
			before = strings.TrimRight(before, " ")
			return before != "" && !strings.ContainsAny(before[len(before)-1:], ":|]>)-=") &&
				!strings.HasSuffix(before, "Error('") && !strings.HasSuffix(before, "Error(\"") &&
				!strings.HasSuffix(before, "ERROR") && !strings.HasSuffix(before, "CRITICAL") && !strings.HasSuffix(before, "FATAL")
		}
	}
	return false
}

func (s *Scanner) give(at Sighting) {
	if s.OnSighting != nil {
		s.OnSighting(at)
	}
}

// lastStep finds the last step in the output before this line.
func (s *Scanner) lastStep() int {
	rest := s.tail
	for range 64 {
		rest = bytes.TrimRight(rest, "\r\n")
		if len(rest) == 0 {
			return 0
		}
		i := lastSeparator(rest)
		if n, _, ok := step(string(rest[i+1:])); ok {
			return n
		}
		rest = rest[:max(i, 0)]
	}
	return 0
}

// clip cuts a text to at most n bytes, between two characters.
func clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "")
}
