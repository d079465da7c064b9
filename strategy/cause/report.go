package cause

import (
	"bytes"
	"iter"
	"slices"
	"strconv"
	"strings"
)

// see reports a finding of the pattern, and returns its number; 0: there is none.
func (s *Scanner) see(w *writer, seg segment, p *pattern, raised bool) int {
	if p.recovery || p.weight == WeightHandled {
		s.recover()
	}
	if p.recovery {
		return 0
	}
	t := w.traceback
	if !raised && !t.open && w.since <= messageReach && !p.reports() {
		t = w.closed // the message continues under the exception's name
	}
	weight := p.weight
	if raised {
		weight = p.raised()
	}
	at := Finding{
		Code: p.code, Weight: weight, Raised: raised && !t.ignored, Top: raised && t.top && !t.ignored && !t.thread &&
			leavesProgram(t.first, t.second),
		Quoted: t.quoted, After: t.after, From: t.from, Phase: p.phase, Rank: seg.rank, Device: p.device,
		Stream: s.stream, Line: s.line + 1, Text: clip(strings.TrimSpace(seg.text), textLimit),
	}
	at.setPhase(&t, raised)
	if raised {
		at.Traceback = t.kept()
	}
	s.refine(&at, &t, raised)
	s.weigh(&at, &t, p.weight == WeightCause && !raised)
	if !s.wanted(&at) {
		return 0
	}
	if raised && at.Code == UserError && strings.HasPrefix(at.Text, "AssertionError") &&
		strings.Contains(t.last.file, "/ray/") {
		at.Remarks = []Remark{SaysOrchestrator}
	}
	if raised && t.printed() {
		at.Remarks = append(at.Remarks, SaysPrinted)
	}
	if p == pipeEnded {
		at.Remarks = []Remark{SaysElsewhere}
	}
	if raised && at.Code == Preempted && w.link == implicit {
		s.interrupts(w)
	}
	s.ends(w, &at, &t)
	switch {
	case at.Code.OutOfMemory():
		at.Figures, at.Step, at.Growth = parseFigures(at.Text), s.LastStep(), s.recentGrowth()
	case at.Code == Diverged:
		at.Step = s.LastStep()
	}
	at.Start, at.Seq = s.start.number, s.number(&at)
	s.give(at)
	remembered := at.Code.OutOfMemory() || at.Code == PortInUse || at.Weight == WeightCause || at.Raised &&
		at.Weight != WeightSymptom
	if (remembered || slices.Contains(Remarks(at.Code, at.Text), SaysNotRun)) && !s.lsf.inside {
		s.remind(w, at, raised && t.top)
	}
	return at.Seq
}

// setPhase completes the phase by the traceback.
func (at *Finding) setPhase(t *traceback, raised bool) {
	if at.Phase == "" && (t.open || raised || t.frames > 0) {
		at.Phase = t.tracker.result()
	}
	if at.Phase == NoPhase && at.Code == CUDAOOM {
		at.Phase = t.tracker.suggestion() // only computing takes a device's memory there
	}
	if at.Phase == "" {
		at.Phase = NoPhase
	}
	if at.Code == Preempted || at.Text != "" && strings.Contains(at.Text, "DataLoader worker") {
		at.Phase = NoPhase // a signal can arrive in any phase
	}
	if (at.Code == NCCLError || at.Code == NCCLTimeout) && t.tracker.collective && !t.tracker.firm {
		at.Phase = Collective // part of any phase
	}
}

// number gives a finding its number. Of exceptions without end, a stream keeps the first ones and
// the last: each replaces the one before it.
func (s *Scanner) number(at *Finding) int {
	if at.Raised {
		s.raised++
		if s.raised > raisedLimit {
			return s.lastRaised
		}
	}
	s.seq++
	if at.Raised {
		s.lastRaised = s.seq
	}
	return s.seq
}

// wanted bounds the number of findings of lines that repeat.
func (s *Scanner) wanted(at *Finding) bool {
	if at.Raised {
		return true
	}
	if at.Weight == WeightWarning || at.Weight.Over() {
		s.weak[at.Code]++
		return s.weak[at.Code] <= weakLimit
	}
	s.logged[at.Code]++
	return s.logged[at.Code] <= loggedLimit
}

// refine reads further details of some causes.
func (s *Scanner) refine(at *Finding, t *traceback, raised bool) {
	switch at.Code {
	case CUDAOOM, HostOOM:
		if at.Code == CUDAOOM && (t.tracker.pinned || t.tracker.pins) &&
			strings.Contains(at.Text, "CUDA error: out of memory") {
			at.Code, at.Device = HostOOM, "" // cudaHostAlloc reports the device's words
		}
		if at.Code == CUDAOOM {
			at.Device = parseDevice(at.Text)
		}
	case GPUHardware:
		at.Device = parseDevice(at.Text)
	case DiskFull:
		if path := PathIn(at.Text); t.tracker.shared && (path == "" || strings.HasPrefix(path, "/dev/shm")) {
			at.Code = SharedMemory
		}
	case Unknown:
		if _, rest, is := strings.Cut(at.Text, "NVRM: Xid"); is {
			if n, ok := xidNumber(rest); ok {
				at.Code, _ = XID(n)
				at.Weight = WeightCause
				if at.Code == Unknown {
					at.Weight = WeightWarning
				}
			}
		}
	}
}

// PathIn is the file that a message of the system names: "[Errno 28] No space left on device:
// '/tmp/x'"; empty: none.
func PathIn(text string) string {
	_, rest, ok := strings.Cut(text, ": '/")
	if !ok {
		return ""
	}
	path, rest, ok := strings.Cut(rest, "'")
	if !ok {
		return ""
	}
	if to, isCopy := strings.CutPrefix(rest, " -> '/"); isCopy { // the file that cannot be written is the second one
		path, _, _ = strings.Cut(to, "'")
	}
	return "/" + path
}

// xidNumber reads 79 of "NVRM: Xid (PCI:0000:06:00): 79, pid=1234, GPU has …".
func xidNumber(text string) (int, bool) {
	_, rest, ok := strings.Cut(text, "): ")
	if !ok {
		return 0, false
	}
	if _, previous, ok := strings.Cut(rest, "revious Xid "); ok {
		rest = previous // the event is only its consequence
	}
	number, _ := leadingDigits(rest, 4)
	v, err := strconv.Atoi(number)
	return v, err == nil
}

// weigh adapts the weight to the line's surroundings. logged: the line would be proof, but no
// exception raised it.
func (s *Scanner) weigh(at *Finding, t *traceback, logged bool) {
	switch {
	case t.removal && at.Code != Preempted: // a signal may arrive there, too
		at.Weight, at.Remarks = WeightHarmless, []Remark{SaysIgnored}
	case t.ignored && t.open, t.thread && at.Code == UserError:
		at.Weight = at.Weight.Warned()
	}
	// A killed worker of a loader ends the job only through the exception that its parent raises;
	// a parent that shuts down prints the same words.
	if logged && strings.Contains(at.Text, "DataLoader worker (") && strings.Contains(at.Text, "signal: Killed") {
		at.Weight = at.Weight.Warned()
	}
	if logged && (strings.Contains(at.Text, "Warning: ") || at.Code == CUDAOOM &&
		(hearsay(at.Text) || strings.Contains(at.Text, "WARNING"))) {
		at.Weight = at.Weight.Warned() // a line about the end of the job is not a warning
	}
	if logged && at.Code == CUDAOOM && s.recovering > 0 && s.line+1-s.recovering <= wordsReach {
		at.Weight = at.Weight.Handled()
	}
}

// hearsay reports whether a line only mentions an out-of-memory error: advice, documentation, a
// generated text. A real message has an amount, or begins where a sentence would not: at the
// line's start, after a colon, a level or a bracket.
func hearsay(text string) bool {
	i := strings.Index(text, "out of memory")
	if i < 0 || strings.Contains(text, "ried to allocate") {
		return false
	}
	head := text[:i]
	if contains(head, []string{"f you ", "void ", "revent", "n case of", " may ", " might ", " could ", "such as",
		"e.g."}) {
		return true
	}
	for _, device := range []string{"CUDA ", "HIP ", "XPU ", "NPU "} {
		if before, ok := strings.CutSuffix(head, device); ok {
			before = strings.TrimRight(before, " ")
			return before != "" &&
				!slices.ContainsFunc([]string{":", "|", "]", ">", ")", "-", "=", "Error('", "Error(\"", "ERROR", "CRITICAL",
					"FATAL"},
					func(end string) bool { return strings.HasSuffix(before, end) })
		}
	}
	return false
}

// beyondText are the remarks that a finding's text does not show.
var beyondText = []Remark{SaysIgnored, SaysOrchestrator, SaysCut, SaysElsewhere, SaysPrinted}

func (s *Scanner) give(at Finding) {
	if s.OnFinding != nil {
		if !at.Says(SaysComplaint) {
			shown := slices.DeleteFunc(at.Remarks, func(r Remark) bool { return !slices.Contains(beyondText, r) })
			at.Remarks = append(Remarks(at.Code, at.Text), shown...) // those that the text does not show
		}
		s.OnFinding(at)
	}
}

// LastStep is the number of the last training step in the output; 0: none.
func (s *Scanner) LastStep() int {
	for line := range s.recent(64) {
		if n, _, ok := step(string(line)); ok {
			return n
		}
	}
	return 0
}

// lastMove is the number in the last line that shows progress of any kind; 0: none.
func (s *Scanner) lastMove() int {
	for line := range s.recent(64) {
		if m := moves(string(line)); m.ok {
			return m.number
		}
	}
	return 0
}

// recent yields the given number of last lines, the last one first.
func (s *Scanner) recent(lines int) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		rest := last(s.tail)
		for range lines {
			if rest = bytes.TrimRight(rest, "\r\n"); len(rest) == 0 {
				return
			}
			i := lastSeparator(rest)
			if !yield(rest[i+1:]) {
				return
			}
			rest = rest[:max(i, 0)]
		}
	}
}

// clip cuts a text to at most n bytes, between two characters.
func clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "")
}
