package cause

import (
	"slices"
	"strings"
)

// follow reads a line of the writer's traceback. It returns true if the line ended the traceback
// and was reported.
func (s *Scanner) follow(w *writer, seg segment) bool {
	t := &w.traceback
	if t.open {
		seg.text = t.bare(seg.text)
	}
	text := seg.text
	quote := t.endsWithQuote(text) // then the frames on the line belong to the message
	if !quote && s.announces(w, text) {
		return false
	}
	more := false
	if text, more = t.rejoin(text); more {
		return false
	}
	if f, ok := parseFrame(text); ok && !quote {
		unparsed := !t.open && f.function == "" && strings.HasPrefix(text, `  File "`)
		if !t.open && f.function == "" && !unparsed {
			w.locate(s, f) // pytest names the innermost place last
			return false
		}
		if !t.open {
			t.quoted = s.quotes(w)
		}
		t.frame(f, text)
		if unparsed {
			t.header, t.top, t.indent = true, true, 0 // the program itself: no traceback precedes its SyntaxError
		}
		return false
	}
	w.since++
	if !t.open && strings.HasPrefix(text, "❱ ") {
		*t = traceback{open: true, header: true} // the beginning is missing
		t.tracker.torn = true
	}
	if !t.open {
		return false
	}
	class, message, ok := exception(text)
	if !ok || t.frames == 0 && !t.header || indented(text, t) {
		t.context(text)
		return false
	}
	if wrapper(class, message) {
		ignored, removal, thread := t.ignored, t.removal, t.thread
		t.begin(text)
		t.ignored, t.removal, t.thread = ignored, removal, thread
		return false
	}
	s.conclude(w, seg, text, class, message)
	if quote && strings.HasSuffix(text, "(most recent call last):") {
		*t = traceback{open: true, header: true, quoted: true, indent: tornIndent} // the message continues
	}
	return true
}

// pipeEnded is the exception in a process whose pipe to another one ended: the other one has ended.
var pipeEnded = &pattern{code: Unknown, weight: WeightSymptom}

// interrupted is SIGINT, in the program or while it dealt with it.
var interrupted = &pattern{code: Preempted, weight: WeightSymptom}

// conclude reports the exception that ends the writer's traceback.
func (s *Scanner) conclude(w *writer, seg segment, text, class, message string) {
	t := &w.traceback
	t.keep(text)
	p := exceptionPattern(class, text, s.whole)
	if p.code == UserError && class == "EOFError" && strings.Contains(t.last.file, "multiprocessing/connection.py") {
		p = pipeEnded
	}
	if p.code == UserError && message == "" && strings.Contains(t.last.file, "torch/multiprocessing/spawn.py") {
		p = &pattern{code: Unknown, weight: WeightSymptom} // the message is the traceback of another process
	}
	t.from = w.from(t, class, text)
	if w.link != noLink {
		t.after = w.ended.seq
	}
	if p.code == UserError && t.after > 0 && w.ended.code == Preempted {
		p = interrupted
	}
	seq := s.see(w, seg, p, true)
	w.closed, w.since, w.link = *t, 0, noLink
	w.ended = lastException{code: p.code, from: t.from, text: text, seq: seq}
	if t.top && p.code == UserError {
		s.left, s.leftBy = s.line+1, w
	}
	*t = traceback{}
}

// announces reads the lines around a traceback: its header, Python's lines before it, and the
// line that joins it to another one.
func (s *Scanner) announces(w *writer, text string) bool {
	t := &w.traceback
	trimmed := strings.TrimLeft(text, " ")
	switch {
	case strings.HasPrefix(trimmed, "Exception ignored "), strings.Contains(trimmed, "--- Logging error ---"):
		t.ignored, t.removal, t.announced = true, trimmed[0] == 'E', s.line
	case strings.HasPrefix(trimmed, "Error in sys.excepthook:"):
		t.ignored, t.announced = true, s.line // the program's own exception follows
	case strings.HasPrefix(trimmed, "Exception in thread"):
		t.thread, t.announced = true, s.line
	case s.chained(w, trimmed):
	case strings.Contains(text, "Traceback (most recent call last)"), strings.Contains(text, "Traceback of TorchScript"):
		if s.line-t.announced > announceReach {
			t.ignored, t.removal, t.thread = false, false, false // the announcement had no traceback
		}
		if !t.open {
			t.quoted = s.quotes(w)
		}
		t.begin(text)
	default:
		return false
	}
	return true
}

// indented reports whether a line that looks like an exception is deeper than the traceback's
// header, as source code is.
func indented(text string, t *traceback) bool {
	columns := len(text) - len(strings.TrimLeft(text, " "))
	return columns > t.indent
}

// wrapper reports exceptions that only pass on another one, whose traceback follows: PyTorch's
// workers, Ray's tasks.
func wrapper(class, message string) bool {
	return strings.HasPrefix(message, "Caught ") && strings.Contains(message, " in ") ||
		strings.Contains(class, "RayTaskError(")
}

// exceptionPattern classifies the line that ends a traceback: by its text, unless it only quotes
// that text, or else by its class.
func exceptionPattern(class, text string, whole bool) *pattern {
	if p := classify(text); p != nil && !p.recovery && !quotes(class, text, p, whole) {
		return p
	}
	if _, message, _ := exception(text); strings.HasPrefix(message, "KeyboardInterrupt") {
		return interrupted // an import, or C++ code, made another exception of it
	}
	last := class[strings.LastIndexByte(class, '.')+1:]
	switch last {
	case "KeyboardInterrupt":
		return interrupted
	case "SystemExit":
		return &pattern{code: UserError, weight: WeightSymptom}
	case "MemoryError", "_ArrayMemoryError":
		return &pattern{code: HostOOM, device: "cpu"}
	case "ImportError", "ModuleNotFoundError":
		return &pattern{code: UserError, phase: Load}
	case "ResourceExhaustedError":
		_, message, _ := exception(text)
		switch {
		case !strings.Contains(class, "errors_impl") && class != last:
		case hasPrefix(message, []string{"/", "./", "../"}) || strings.Contains(message, "[Op:Save"):
			return &pattern{code: DiskFull, phase: Save} // a file, rather than a tensor
		default:
			return &pattern{code: CUDAOOM} // TensorFlow
		}
	case "OutOfMemoryError":
		if strings.HasPrefix(class, "torch") || class == last {
			return &pattern{code: CUDAOOM}
		}
	}
	if notFinite(text) {
		return &pattern{code: Diverged}
	}
	return &pattern{code: UserError}
}

// notFinite reports whether an exception's message says that a quantity of the training is no
// longer finite, in any words: "non-finite loss nan at iteration 20". One about the data's NaNs
// is a mistake in the data.
func notFinite(text string) bool {
	text = strings.ToLower(text)
	if !contains(text, []string{"loss", "gradient", "grad ", "grad_norm", "network output", "model output", "logits"}) ||
		strings.Contains(text, "input") {
		return false
	}
	return slices.ContainsFunc(strings.FieldsFunc(text, func(c rune) bool { return c != '-' && (c < 'a' || c > 'z') }),
		func(word string) bool {
			return slices.Contains([]string{"nan", "nans", "inf", "infinite", "infinity", "non-finite", "nonfinite",
				"not-finite"}, word)
		}) || strings.Contains(text, "not finite")
}
