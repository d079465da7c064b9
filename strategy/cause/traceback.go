package cause

import (
	"slices"
	"strings"
)

// A traceback follows one writer's exception from the first frame to the line that names it.
type traceback struct {
	open    bool
	header  bool // "Traceback (most recent call last)" was seen, not just a frame
	indent  int  // columns before the header
	frames  int
	modules int  // frames that are the top level of a module
	top     bool // the outermost frame is a module: the exception leaves the program
	ignored bool // Python reports that it ignores the exception
	removal bool // of an object, or of the program: it is ignored for this reason
	thread  bool // it ends a thread, not the program
	quoted  bool // it begins directly below an exception that left the program
	from    Code // the cause of the exception that this one is raised from
	after   int  // the number of that exception; 0: none
	// launcher: a frame is in the code of a launcher, which waits for the processes that it started.
	launcher bool
	// first and second are the outermost frames, last is the innermost.
	first, second, last frame
	// announced is the line of the message that set ignored or thread.
	announced int
	quiet     int // lines since the last one that belongs to the traceback
	tracker   phaseTracker
	lines     []string // the last ones
	dropped   int      // number of lines before them
	// own are the lines of the innermost frame of the job's own code, ownAt the number of the
	// first.
	own   []string
	ownAt int
	// prefix is the logger's prefix of the first line: time, level, name.
	prefix string
	// half is the first part of a frame that a terminal broke in two.
	half string
}

const (
	tracebackLines = 40  // kept for people to read
	tracebackWidth = 400 // of each
	// tracebackQuiet is the largest number of lines between two lines of a traceback: the context
	// lines of IPython and pytest, the figures of TorchScript.
	tracebackQuiet = 60
	// announceReach is the number of lines after "Exception ignored in" or "Exception in thread"
	// in which the traceback begins.
	announceReach = 3
	// tornIndent is the largest indentation of the line of an exception if the traceback's
	// beginning is missing.
	tornIndent = 12
	// prefixLimit is the largest length of a logger's prefix.
	prefixLimit = 200
)

// begin starts over at a header.
func (t *traceback) begin(text string) {
	ignored, removal, thread, quoted := t.ignored && !t.open, t.removal && !t.open, t.thread && !t.open, t.quoted
	*t = traceback{open: true, header: true, ignored: ignored, removal: removal, thread: thread, quoted: quoted}
	t.indent = len(text) - len(strings.TrimLeft(text, " "))
	if !strings.HasPrefix(strings.TrimLeft(text, " "), "Traceback") {
		t.indent = 0 // the header is glued to other output
		if i := strings.Index(text, "Traceback"); i > 0 && i <= prefixLimit {
			t.prefix = text[:i]
		}
	}
	t.keep(text)
}

// bare removes the logger's prefix from a line of the traceback. The prefix has the length of the
// first line's, and differs from it only in digits.
func (t *traceback) bare(text string) string {
	if t.prefix == "" || len(text) < len(strings.TrimRight(t.prefix, " ")) {
		return text
	}
	for i := range min(len(text), len(t.prefix)) {
		a, b := text[i], t.prefix[i]
		if a != b && (a < '0' || a > '9' || b < '0' || b > '9') {
			return text
		}
	}
	return text[min(len(text), len(t.prefix)):]
}

// brokenFrame reports whether a line is the first part of a frame that the rich
// library broke: "/lib/engine.py:330", "/lib/engine.py:330 in".
func brokenFrame(text string) bool {
	head := strings.TrimSuffix(text, " in")
	i := strings.LastIndex(head, ".py:")
	return i > 0 && digits(head[i+len(".py:"):]) && !strings.ContainsAny(head, " \t\"'(")
}

// rejoin reads a line that may be a part of a frame that a terminal broke, and reports whether
// more of the frame must follow. Otherwise it returns the line with the parts before it.
func (t *traceback) rejoin(text string) (string, bool) {
	trimmed := strings.TrimSpace(text)
	half := t.half
	t.half = ""
	switch {
	case half == "File" && strings.HasPrefix(trimmed, `"`), half != "" && half != "File" &&
		!strings.HasPrefix(half, `File "`):
		text = half + " " + trimmed
	case strings.HasPrefix(half, `File "`):
		text = half + trimmed // within the file's name
	case half == "" && t.open && (trimmed == "File" || brokenFrame(trimmed)):
		t.half = trimmed
		return "", true
	}
	if strings.HasPrefix(text, `File "`) && len(text) <= tracebackWidth && !strings.Contains(text, `", line `) {
		t.half = text
		return "", true
	}
	return text, false
}

func (t *traceback) keep(text string) {
	if len(text) > tracebackWidth {
		text = strings.ToValidUTF8(text[:tracebackWidth], "")
	}
	if len(t.lines) == tracebackLines {
		copy(t.lines, t.lines[1:])
		t.lines = t.lines[:tracebackLines-1]
		t.dropped++
	}
	t.lines = append(t.lines, text)
}

// keepOwn keeps the last line as one of the job's own code.
func (t *traceback) keepOwn(first bool) {
	at := t.dropped + len(t.lines) - 1
	switch {
	case first:
		t.own, t.ownAt = []string{t.lines[len(t.lines)-1]}, at
	case len(t.own) == 1 && at == t.ownAt+1:
		t.own = append(t.own, t.lines[len(t.lines)-1])
	}
}

// kept returns the lines for people to read: the last ones, and those of the job's own code.
func (t *traceback) kept() []string {
	if len(t.own) == 0 || t.ownAt >= t.dropped {
		return slices.Clone(t.lines)
	}
	return slices.Concat(t.own, []string{cut}, t.lines[len(t.own)+1:])
}

// frame reads a line that names a frame. A frame without a header also opens a traceback: saved
// output often begins in the middle of one.
func (t *traceback) frame(f frame, text string) {
	if !t.open {
		ignored, removal, thread, quoted := t.ignored, t.removal, t.thread, t.quoted
		*t = traceback{open: true, ignored: ignored, removal: removal, thread: thread, quoted: quoted}
		t.tracker.torn = true
		t.indent = max(tornIndent, len(text)-len(strings.TrimLeft(text, " "))-len("  "))
		if i := strings.Index(text, `  File "`); i > 0 && strings.Trim(text[:i], " ") != "" {
			t.prefix = text[:i]
		}
	}
	if t.frames == 0 {
		t.top = t.header && (f.function == "<module>" || f.function == "_run_module_as_main")
		t.first = f
	}
	if t.frames == 1 {
		t.second = f
	}
	t.last = f
	t.frames++
	if f.function == "<module>" {
		t.modules++
	}
	t.quiet = 0
	t.launcher = t.launcher || contains(f.file, launcherFiles)
	t.tracker.add(f)
	t.keep(text)
	if !installed(f.file) && !strings.HasPrefix(f.file, "<") && !ofHook().MatchString(f.file) {
		t.keepOwn(true)
	}
}

// importing reports whether the exception left a module that the program was importing: the
// program had just begun.
func (t *traceback) importing() bool { return t.top && t.modules > 1 }

// isSource reports whether the last line is the source code of a frame: its text is in the
// program, and may never have been printed by it.
func (t *traceback) isSource(text string) bool {
	text = t.bare(text)
	return t.open && t.header && t.frames > 0 && t.quiet == 1 &&
		len(text)-len(strings.TrimLeft(text, " ")) >= t.indent+len("    ")
}

// context reads a line between frames: source code, markers, blank lines.
func (t *traceback) context(text string) {
	t.quiet++
	if t.quiet > tracebackQuiet {
		t.open = false
		return
	}
	code := strings.TrimLeft(text, " >-❱0123456789│")
	if code == "" || strings.Trim(code, "^~ ") == "" {
		return
	}
	// IPython shows lines around the current one, which has an arrow; of the others only
	// generated code is useful.
	current := t.quiet == 1 && strings.HasPrefix(text, " ") || strings.Contains(text, "-> ") ||
		strings.HasPrefix(text, ">") || strings.HasPrefix(text, "❱")
	if current {
		t.tracker.source(code)
	} else if strings.Contains(code, "primals_") || strings.Contains(code, "tangents_") {
		t.tracker.source(code)
	}
	if t.quiet == 1 {
		t.keep(text)
		t.keepOwn(false)
	}
}

// parseFrame reads the line that names a frame:
//
//	File "train.py", line 3, in main           Python, all versions; TorchScript
//	File ~/train.py:3, in main(args)           IPython 8
//	~/train.py in main(args)                   IPython 7
//	train.py:3: in main                        pytest
//	train.py:3: RuntimeError                   pytest, the innermost
func parseFrame(text string) (frame, bool) {
	t := strings.TrimLeft(text, " ")
	if i := strings.Index(t, `File "`); i >= 0 && i <= prefixLimit {
		file, rest, ok := strings.Cut(t[i+len(`File "`):], `"`)
		if !ok || !strings.HasPrefix(rest, ", line ") {
			return frame{}, false
		}
		_, function, _ := strings.Cut(rest, ", in ")
		return frame{file: file, function: strings.TrimSpace(function)}, true
	}
	if rest, ok := strings.CutPrefix(t, "File "); ok {
		t = rest
	}
	i := strings.Index(t, ".py")
	if i < 0 || i > 400 || strings.ContainsAny(t[:i], " \t(\"'") {
		return frame{}, false
	}
	file, rest := t[:i+len(".py")], t[i+len(".py"):]
	if strings.HasPrefix(rest, "](http") { // Colab links to its editor
		_, rest, _ = strings.Cut(rest, ")")
	}
	if after, ok := strings.CutPrefix(rest, ":"); ok {
		n := 0
		for n < len(after) && after[n] >= '0' && after[n] <= '9' {
			n++
		}
		if n == 0 {
			return frame{}, false
		}
		rest = after[n:]
	}
	for _, mark := range []string{", in ", " in ", ": in "} {
		if name, ok := strings.CutPrefix(rest, mark); ok {
			return frame{file: file, function: bare(name), op: strings.Contains(name, ".forward(ctx")}, true
		}
	}
	if name, ok := strings.CutPrefix(rest, ": "); ok && exceptionName(name) {
		return frame{file: file}, true
	}
	return frame{}, false
}

// bare strips arguments and qualifiers: "Module.to.<locals>.convert(t)" becomes convert.
func bare(name string) string {
	name, _, _ = strings.Cut(name, "(")
	name = strings.TrimSpace(name)
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		name = name[i+1:]
	}
	return name
}

// exception reads the line that ends a traceback: "module.Class: message", or the class alone,
// with an empty message.
func exception(text string) (class, message string, ok bool) {
	t := strings.TrimLeft(text, " *`") // with the signs of bold text or code
	class, message, found := strings.Cut(t, ":")
	if !found {
		class = strings.TrimRight(t, " ")
	}
	if len(class) > 120 || !exceptionName(class) {
		return "", "", false
	}
	if found && message != "" && message[0] != ' ' {
		return "", "", false
	}
	return class, strings.TrimSpace(message), true
}

// exceptionName reports whether s can be the dotted name of an exception class.
func exceptionName(s string) bool {
	// Ray: "ray.exceptions.RayTaskError(ValueError)".
	s, _, _ = strings.Cut(strings.TrimPrefix(s, hookPackage), "(")
	last := strings.TrimLeft(s[strings.LastIndexByte(s, '.')+1:], "_") // "torch._C._LinAlgError"
	if last == "" || strings.HasPrefix(s, ".") {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if !letter(c) && c != '_' && c != '.' && (c < '0' || c > '9') {
			return false
		}
	}
	if last[0] < 'A' || last[0] > 'Z' {
		return false
	}
	for _, end := range []string{"Error", "Exception", "Interrupt", "Exit", "Warning", "Iteration", "Failure", "Failed",
		"Timeout", "Abort", "Cancelled", "NotOk", "OutOfResources"} {
		if strings.HasSuffix(last, end) {
			return true
		}
	}
	return strings.Contains(s, ".") && last != s
}

// atExitWriters are libraries that write when a process ends, with or without an error:
// summaries, bars that close, engines that are torn down. Their output after an error, even a
// traceback, does not show that the process continued.
var atExitWriters = []string{
	"/wandb/", "/tqdm/", "/deepspeed/", "/comet_ml/", "/mlflow/", "/clearml/", "/neptune/", "/tensorboard",
	"/multiprocessing/resource_tracker.py",
}

// launcherFiles are parts of the paths of files in which launchers wait for the processes that they
// started.
var launcherFiles = []string{
	"torch/distributed/run.py", "torch/distributed/launch.py", "torch/distributed/launcher/",
	"torch/distributed/elastic/agent/",
	"/bin/torchrun", "/bin/accelerate", "/bin/deepspeed", "/bin/horovodrun", "accelerate/commands/",
	"deepspeed/launcher/", "torch/multiprocessing/spawn.py", "horovod/runner/", "colossalai/cli/launcher/",
}

// startedByProgram is the outermost frame of a process that the program started: Python's
// multiprocessing runs a string.
const startedByProgram = "<string>"

// processFiles are parts of the paths of files in which a process, or a thread, that the program started begins.
var processFiles = []string{"/multiprocessing/", "/threading.py", "/concurrent/futures/", "/ray/", "/joblib/",
	"/runpy.py"}

// printed reports whether the traceback, which is whole, begins within the program: the program caught the exception.
func (t *traceback) printed() bool {
	return t.header && !t.top && t.frames > 0 && !t.tracker.torn && t.first.file != startedByProgram &&
		!contains(t.first.file, processFiles)
}

// leavesProgram reports whether a traceback with these outermost frames leaves the program
// itself, rather than a process that it started or the code that runs at its end.
func leavesProgram(first, second frame) bool {
	return first.file != startedByProgram && !contains(second.file, atExitWriters)
}
