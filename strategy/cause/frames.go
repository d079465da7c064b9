package cause

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A SourceLine is a line of code in a traceback.
type SourceLine struct {
	File     string `json:"file"`
	Line     int    `json:"line"`
	Function string `json:"function,omitempty"`
	Code     string `json:"code,omitempty"` // the line itself
}

// String is its short form: "train.py:41".
func (p *SourceLine) String() string { return fmt.Sprintf("%s:%d", path.Base(p.File), p.Line) }

// Words are its long form: "/home/u/train.py:41, in setup: return cfg["lr"]".
func (p *SourceLine) Words() string {
	said := fmt.Sprintf("%s:%d", p.File, p.Line)
	if p.Function != "" && p.Function != "<module>" {
		said += ", in " + p.Function
	}
	if p.Code != "" {
		said += ": " + p.Code
	}
	return said
}

// The largest sizes for a sentence, in bytes.
const (
	longestFile = 512
	longestCode = 200
)

// frameLine matches a frame's line in a traceback of Python, or of rich; the function is empty if
// it does not parse.
var frameLine = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(
		`^\s*(?:File "([^"<][^"]*)", line (\d{1,9})(?:, in (.{1,200}))?|(/\S+\.py):(\d{1,9}) in (\S{1,200}))$`)
})

// Place is the line that raised the finding's exception: the innermost line of the job's own
// code, or else of any; nil if its traceback names none.
func (f *Finding) Place() (found *SourceLine) {
	for i, line := range f.Traceback {
		m := frameParts(line)
		if m == nil || len(m[1]) > longestFile || ofHook().MatchString(m[1]) || found != nil && installed(m[1]) &&
			found.Own() {
			continue
		}
		found = &SourceLine{File: m[1], Function: m[3]}
		found.Line, _ = strconv.Atoi(m[2])
		if i+1 < len(f.Traceback) && strings.HasPrefix(f.Traceback[i+1], "    ") && len(f.Traceback[i+1]) <= longestCode &&
			!frameLine().MatchString(f.Traceback[i+1]) {
			found.Code = strings.TrimSpace(f.Traceback[i+1])
		}
	}
	return found
}

// frameParts returns the file, the line and the function of a frame, from index 1; nil for another line.
func frameParts(line string) []string {
	m := frameLine().FindStringSubmatch(line)
	if m != nil && m[1] == "" {
		copy(m[1:], m[4:]) // rich's
	}
	return m
}

// ByLauncher reports whether the exception was raised in a launcher's code.
func (f *Finding) ByLauncher() bool {
	return slices.ContainsFunc(f.Traceback, func(line string) bool {
		m := frameParts(line)
		return m != nil && contains(m[1], launcherFiles)
	})
}

// BetweenPackages reports whether an installed package raised the error in the code of another
// file that is installed.
func (f *Finding) BetweenPackages() bool {
	var files []string
	for _, line := range f.Traceback {
		if m := frameParts(line); m != nil {
			files = append(files, m[1])
		}
	}
	n := len(files)
	return n > 1 && installed(files[n-1]) && installed(files[n-2]) && files[n-1] != files[n-2]
}

// Own reports whether the line is in the job's own code, not in a package.
func (p *SourceLine) Own() bool { return !installed(p.File) }

// installed reports whether a file belongs to a package, or to Python itself.
func installed(file string) bool {
	return strings.Contains(file, "-packages/") || strings.Contains(file, "/lib/python")
}

// ofHook matches gpurun's own files in the process of a job. Calls pass through them, and they
// are never the place of an error.
var ofHook = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`/probe-\d+/(?:inside/(?:\w+/)?\w+|sitecustomize)\.py$`)
})

// hookPackage begins the full names of the exceptions of gpurun's own code in the process.
const hookPackage = "gpurun-probe."

// frameBeginning matches any line of a frame, with any prefix of a logger.
var frameBeginning = sync.OnceValue(
	func() *regexp.Regexp { return regexp.MustCompile(`^(.{0,200}?)File "([^"]*)", line \d`) })

// cut stands for omitted lines of a traceback.
const cut = "  …"

// Shown returns at most most of the last lines of a traceback, without gpurun's own frames. From 6
// lines on, they include the innermost frame of the job's own code.
func Shown(traceback []string, most int) []string {
	lines, own := withoutHook(traceback)
	from := max(0, len(lines)-most)
	if own < 0 || own >= from || most < 6 {
		return lines[from:]
	}
	kept := lines[own : own+1 : own+1]
	if next := lines[own+1]; !frameBeginning().MatchString(next) && deeper(next, lines[own]) {
		kept = append(kept, next)
	}
	return slices.Concat(kept, []string{cut}, lines[len(lines)-most+len(kept)+1:])
}

// withoutHook omits gpurun's own frames. own is the index of the innermost remaining frame of the
// job's code; -1: none.
func withoutHook(traceback []string) (lines []string, own int) {
	own = -1
	dropped := "" // the frame that is being omitted
	for _, line := range traceback {
		m := frameBeginning().FindStringSubmatch(line)
		switch {
		case m != nil && ofHook().MatchString(m[2]):
			dropped = line
			continue
		case m == nil && dropped != "" && deeper(line, dropped):
			continue // its source
		case m != nil && !installed(m[2]) && !strings.HasPrefix(m[2], "<"):
			own = len(lines)
		}
		dropped = ""
		lines = append(lines, line)
	}
	return lines, own
}

// deeper reports whether a line is indented more than a frame's.
func deeper(line, frame string) bool {
	in := func(s string) int { return len(s) - len(strings.TrimLeft(s, " ")) }
	return in(line) > in(frame)
}

// A StackFrame is one call on the stack that a process reported.
type StackFrame struct {
	File     string `json:"file"`
	Line     int    `json:"line"`
	Function string `json:"function"`
}

func (f StackFrame) String() string {
	return fmt.Sprintf("%s:%d in %s", path.Base(f.File), f.Line, f.Function)
}

// waitsInside are parts of the paths of files in which a rank waits for others, and waitsIn
// functions of PyTorch that end when the others have done their part.
var (
	waitsInside = []string{"torch/distributed/", "torch/autograd/", "torch/nn/parallel/", "deepspeed/comm/"}
	waitsIn     = []string{"synchronize"}
)

// Waits reports whether a rank waits for others in this call.
func (f StackFrame) Waits() bool {
	return slices.Contains(waitsIn, f.Function) || contains(f.File, waitsInside)
}

// Library reports whether the call is in Python's or in an installed library's code.
func (f StackFrame) Library() bool {
	return f.Waits() || ofHook().MatchString(f.File) || installed(f.File) || strings.HasPrefix(f.File, "<")
}
