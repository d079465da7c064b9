package hook

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/launcher/system"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// StackSignal makes a process of orders with Stalls write where it is. It is a real-time signal
// in the middle of the range that is free for programs.
const StackSignal = syscall.Signal(50)

const (
	stacksFile = "stacks"
	// largestStacks bounds how much of such a file is read, in bytes, and mostFrames how much of one stack is
	// kept: Python itself writes a hundred of each of a hundred threads.
	largestStacks = 1 << 20
	mostFrames    = 64
	longestName   = 512 // bytes of a file's name, or a function's
)

// Stacks reads where a rank's process with this pid was at the last signal; false until the main
// thread's stack is whole. What is written until then may have its innermost calls.
func Stacks(dir string, rank, pid int) (strategy.Stack, bool) {
	for _, name := range []string{stacksFile + "-" + strconv.Itoa(pid), stacksFile} {
		text, err := system.ReadHead(filepath.Join(rankFolder(dir, rank), name), largestStacks)
		if os.IsNotExist(err) {
			continue
		}
		if s, whole := parseStacks(text); err == nil && len(s.Frames) > 0 {
			s.PID = pid
			return s, whole
		}
	}
	return strategy.Stack{}, false
}

// What faulthandler writes of a thread, in Python 3.8 to 3.14: a title, and a line for each
// call, the innermost first.
var (
	threadLine = lazy.Regexp(`^(Current thread|Thread) 0x[0-9a-f]+.* \(most recent call first\):$`)
	frameLine  = lazy.Regexp(`^  File "(.*)", line (\d+) in (.*)$`)
)

// programs are the outermost calls of a program: a module's own code, and what runs one for
// python -m.
var programs = []string{"<module>", "_run_module_as_main"}

// parseStacks finds the main thread: the one that the signal found, if it began with a
// program, else one that did, else the last. It reports whether its outermost call is a
// program's: the file has no mark at its end, and may be read at any line. False, too, for the
// innermost hundred calls of a deeper stack, of which no more is written.
func parseStacks(text []byte) (s strategy.Stack, whole bool) {
	var threads [][]cause.StackFrame
	current := -1
	for line := range bytes.Lines(text) {
		line, ended := bytes.CutSuffix(line, []byte("\n"))
		if !ended {
			break
		}
		if m := threadLine().FindSubmatch(line); m != nil {
			if string(m[1]) == "Current thread" {
				current = len(threads)
			}
			threads = append(threads, nil)
		} else if m := frameLine().FindSubmatch(line); m != nil && len(threads) > 0 {
			n, _ := strconv.Atoi(string(m[2]))
			last := &threads[len(threads)-1]
			*last = append(*last, cause.StackFrame{File: short(m[1]), Line: n, Function: short(m[3])})
		}
	}
	best := len(threads) - 1
	for i, frames := range threads {
		if begins(frames) && (!begins(threads[best]) || i == current) {
			best = i
		}
	}
	if best < 0 || len(threads[best]) == 0 {
		return s, false
	}
	s.Threads, s.Frames = len(threads), threads[best][:min(mostFrames, len(threads[best]))]
	return s, begins(threads[best])
}

// begins reports whether the outermost call is a program's.
func begins(frames []cause.StackFrame) bool {
	return len(frames) > 0 && slices.Contains(programs, frames[len(frames)-1].Function)
}

func short(word []byte) string {
	return strings.ToValidUTF8(string(word[:min(longestName, len(word))]), "?")
}
