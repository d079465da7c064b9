package probe

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/launcher/private"
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

// Stacks reads where a rank's process with this pid was at the last signal; false until all of
// it is written.
func Stacks(dir string, rank, pid int) (strategy.Stack, bool) {
	for _, name := range []string{stacksFile + "-" + strconv.Itoa(pid), stacksFile} {
		text, err := private.ReadHead(filepath.Join(rankFolder(dir, rank), name), largestStacks)
		if os.IsNotExist(err) {
			continue
		}
		if s, ok := parseStacks(text); err == nil && ok {
			s.PID = pid
			return s, true
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

// parseStacks finds the main thread: the one that the signal found, if it began with a
// module's code, else one that did, else the last. It reports false for half of a dump.
func parseStacks(text []byte) (s strategy.Stack, whole bool) {
	var threads [][]cause.StackFrame
	current := -1
	for line := range bytes.Lines(text) {
		line, whole = bytes.CutSuffix(line, []byte("\n"))
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
		if outermost(frames) == "<module>" && (outermost(threads[best]) != "<module>" || i == current) {
			best = i
		}
	}
	if best < 0 || len(threads[best]) == 0 {
		return s, false
	}
	s.Threads, s.Frames = len(threads), threads[best][:min(mostFrames, len(threads[best]))]
	return s, whole
}

func outermost(frames []cause.StackFrame) string {
	if len(frames) == 0 {
		return ""
	}
	return frames[len(frames)-1].Function
}

func short(word []byte) string {
	return strings.ToValidUTF8(string(word[:min(longestName, len(word))]), "?")
}
