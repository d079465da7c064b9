package cause

import (
	"regexp"
	"slices"
	"strings"
)

// ofHook are gpurun's own files in the process of a job: calls pass through them, and they are
// never the place of an error.
var ofHook = regexp.MustCompile(`/probe-\d+/(?:inside/\w+|sitecustomize)\.py$`)

// frameBeginning is any line of a frame, whatever a logger put before it.
var frameBeginning = regexp.MustCompile(`^(.{0,200}?)File "([^"]*)", line \d`)

// cut marks omitted lines of a traceback.
const cut = "  …"

// Shown is a traceback for people: without gpurun's own frames, so many of its last lines at
// most, and with the innermost frame of the job's own code whatever is below it.
func Shown(traceback []string, most int) []string {
	lines, own := withoutHook(traceback)
	from := max(0, len(lines)-most)
	if own < 0 || own >= from || most < 6 {
		return lines[from:]
	}
	kept := lines[own : own+1 : own+1]
	if next := lines[own+1]; !frameBeginning.MatchString(next) && deeper(next, lines[own]) {
		kept = append(kept, next)
	}
	return slices.Concat(kept, []string{cut}, lines[len(lines)-most+len(kept)+1:])
}

// withoutHook omits gpurun's own frames. own is the index of the innermost frame of the job's
// code that is left, -1 for none.
func withoutHook(traceback []string) (lines []string, own int) {
	own = -1
	dropped := "" // the frame that is being omitted
	for _, line := range traceback {
		m := frameBeginning.FindStringSubmatch(line)
		switch {
		case m != nil && ofHook.MatchString(m[2]):
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
