package cause

import (
	"slices"
	"strings"
)

// remind remembers an error: its message may continue on further lines, and the job may handle
// it.
func (s *Scanner) remind(w *writer, at Finding, top bool) {
	s.watch = afterLimit
	s.last = w
	if len(w.pending) == handledLimit {
		copy(w.pending, w.pending[1:])
		w.pending = w.pending[:handledLimit-1]
	}
	w.pending = append(w.pending, &pending{finding: at, top: top, wraps: wrappingOf(at.Text)})
}

// advance counts the lines and the steps after each remembered error.
func (s *Scanner) advance(w *writer, text string, m move) {
	if len(w.pending) == 0 {
		return
	}
	well, sure := endsWell(text)
	well, sure = well && !m.ok, sure && !m.ok
	goesOn := !m.ok && !well && w.logged() && progresses(text)
	if goesOnFrom(text) {
		s.dismiss(w)
	}
	kept := w.pending[:0]
	for _, p := range w.pending {
		p.units++
		p.bytes += len(text) + 1
		p.well = p.well || well
		switch {
		case m.ok && text != p.last:
			p.steps += m.weight
			p.last = text
		case goesOn && !p.finding.Raised && text != p.last:
			p.steps++
			p.last = text
		}
		if strings.HasPrefix(text, trainedIn) || strings.HasPrefix(text, trainedAfter) {
			p.finding.Weight = p.finding.Weight.Handled()
			s.give(p.finding)
			continue
		}
		s.outlive(p, well, sure)
		if p.units < afterLimit && !p.finding.Weight.Dismissed() {
			kept = append(kept, p)
		}
	}
	w.pending = kept
}

// goingOn are words of a program that goes on after an exception that it printed.
var goingOn = []string{"kipping", "kipped", "gnoring", "ontinuing", "etrying", "rying again", "alling back"}

// goesOnFrom reports whether a line says that the program goes on.
func goesOnFrom(text string) bool {
	return len(text) <= complaintLimit && contains(text, goingOn) && !strings.HasPrefix(text, "wandb: ")
}

// goesOnReach is the largest number of lines between an exception that a program printed, and the line that says that
// it goes on.
const goesOnReach = 3

// dismiss reports again the last exception as handled, if it is a mistake or the storage's: for memory there are
// recoveryPatterns.
func (s *Scanner) dismiss(w *writer) {
	p := w.pending[len(w.pending)-1]
	f := &p.finding
	if !f.Raised || p.units >= goesOnReach || f.Weight != WeightCause || f.Code != UserError && f.Code != Storage {
		return
	}
	f.Weight = WeightHandled
	s.give(*f)
	if r := &s.start; !r.several {
		r.ending, r.codes = notEnded, nil
	}
	if s.leftBy == w {
		s.left, s.leftBy = 0, nil
	}
}

// logged reports whether there is a remembered error that no exception raised.
func (w *writer) logged() bool {
	return slices.ContainsFunc(w.pending, func(p *pending) bool { return !p.finding.Raised })
}

// outlive reports an error again with a smaller weight if the job continued after it. An
// exception that leaves the program ends it. Steps after it come from another process that writes
// to the same stream, or from a buffer that Python wrote at the program's end. well: the line
// reports that the training ended well; sure: no program writes it after a failure.
func (s *Scanner) outlive(p *pending, well, sure bool) {
	before := p.finding.Weight
	if p.steps >= wentOn {
		p.finding.Weight = before.Outlived()
	}
	again := p.steps >= startedAgain && p.bytes >= buffered
	// Wrong arguments end every rank before it works: so much output is that of another program.
	other := p.finding.Code == UserError && !p.finding.Raised && p.bytes >= buffered
	if other || !p.top && (p.steps >= wentOn || sure) || p.top && (well && p.steps >= wentOn || again) {
		p.finding.Weight = p.finding.Weight.Handled()
	}
	if p.finding.Weight != before {
		s.give(p.finding)
	}
}

// recover records a line in which the job reports that it continues. The line refers to the
// errors shortly before it, and to those that are logged shortly after.
func (s *Scanner) recover() {
	s.recovering = s.line + 1
	if r := &s.start; r.ending == errorSeen {
		r.ending, r.codes = notEnded, nil
	}
	for _, key := range s.order {
		for _, p := range s.writers[key].pending {
			if !p.finding.Weight.Dismissed() && s.line+1-p.finding.Line <= wordsReach {
				p.finding.Weight = p.finding.Weight.Handled()
				s.give(p.finding)
			}
		}
	}
}

// continuations begin the lines onto which terminals and people wrap PyTorch's message.
var continuations = []string{
	"GPU ", "Including non-PyTorch", "Of the allocated memory", "allocated in private pools", "and is reserved",
	"by PyTorch", "GiB reserved in total", "MiB reserved in total", "PyTorch but unallocated", "Process ",
	"this process has",
}

// A wrapping is the way in which a message may continue on further lines.
type wrapping uint8

const (
	wholeMessage   wrapping = iota // it does not
	ofAllocator                    // PyTorch's, which terminals and people wrap
	ofAsyncBackend                 // its figures are on separate lines
	ofTensorFlow                   // the node is on the next line
	beforeFigure                   // the text ends before a figure
)

func wrappingOf(text string) wrapping {
	switch {
	case strings.Contains(text, "would exceed allowed memory"):
		return ofAsyncBackend
	case strings.HasSuffix(text, " to allocate") || strings.HasSuffix(text, " of which"):
		return beforeFigure
	case strings.Contains(text, "OOM when allocating tensor"):
		return ofTensorFlow
	case strings.Contains(text, "ried to allocate") || strings.HasSuffix(text, "ut of memory. Tried"):
		return ofAllocator
	}
	return wholeMessage
}

// asyncLines begin the lines below the message of the cudaMallocAsync backend.
var asyncLines = []string{"Currently allocated", "Requested", "Device limit", "Free (according to CUDA)",
	"PyTorch limit", "                        : "}

// continues reports whether a line continues the message of the last error.
func (w *writer) continues(text string) bool {
	if len(w.pending) == 0 {
		return false
	}
	p := w.pending[len(w.pending)-1]
	if p.units > messageReach || len(p.finding.Text) >= textLimit-512 {
		return false
	}
	if len(text) > 512 {
		return false
	}
	trimmed := strings.TrimLeft(text, " ")
	switch p.wraps {
	case wholeMessage:
		return false
	case ofAsyncBackend:
		return hasPrefix(text, asyncLines)
	case beforeFigure:
		_, n := quantity(trimmed)
		return n > 0
	case ofTensorFlow:
		return p.units <= 2 && strings.HasPrefix(strings.TrimLeft(text, "\t "), "[[") // TensorFlow names the node below
	}
	text = trimmed
	if rest, ok := strings.CutPrefix(text, "and "); ok {
		_, n := quantity(rest)
		return n > 0
	}
	return hasPrefix(text, continuations) || holdsFigure(text) && p.finding.unfinished()
}

// near reports whether the writer's last error is just before this line.
func (s *Scanner) near(w *writer) bool {
	n := len(w.pending)
	return n > 0 && s.line+1-w.pending[n-1].finding.Line <= messageReach
}

// unfinished reports whether PyTorch's message lacks its last figure: a terminal that wraps
// lines, or the rich library, may break it anywhere.
func (s *Finding) unfinished() bool {
	return !contains(s.Text, []string{"reserved in total by PyTorch", "reserved by PyTorch but unallocated", "cached)",
		"free)"})
}

// holdsFigure reports whether a line contains a figure with a name from PyTorch's messages.
func holdsFigure(text string) bool {
	if strings.Contains(text, "ut of memory") {
		return false // another message
	}
	for _, mark := range []string{" already allocated;", "iB free;", " reserved in total by PyTorch", " total capacity",
		"iB of which ", " is free.", " allocated by PyTorch, ", "reserved by PyTorch but ", "iB memory in use"} {
		if i := strings.Index(text, mark); i > 0 {
			return true
		}
	}
	return false
}

func hasPrefix(text string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(text, p) })
}

// extend adds a line to the message of the last error and reports it again.
func (s *Scanner) extend(w *writer, text string) {
	p := w.pending[len(w.pending)-1]
	p.units = 0
	// A terminal may break lines within words.
	glued := p.finding.Text + text
	p.finding.Text += " " + strings.TrimSpace(text)
	p.finding.Figures = parseFigures(p.finding.Text)
	if f := parseFigures(glued); f.known() > p.finding.Figures.known() {
		p.finding.Text, p.finding.Figures = glued, f
	}
	p.wraps = wrappingOf(p.finding.Text)
	if p.finding.Phase == NoPhase && contains(text, []string{"gradients/", "gradient_tape/"}) &&
		contains(text, []string{"{{node ", "[[Node: "}) {
		p.finding.Phase = Backward
	}
	if p.finding.Device == "" {
		p.finding.Device = parseDevice(p.finding.Text)
	}
	s.give(p.finding)
}

// locate reads the place that pytest names under an exception, for a phase that the frames above
// it do not show.
func (w *writer) locate(s *Scanner, f frame) {
	if len(w.pending) == 0 {
		return
	}
	p := w.pending[len(w.pending)-1]
	if p.units > 3 || p.finding.Phase != NoPhase {
		return
	}
	var t phaseTracker
	t.add(f)
	if phase := t.result(); phase != NoPhase {
		p.finding.Phase = phase
		s.give(p.finding)
	}
}
