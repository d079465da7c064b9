package ranks

import (
	"bytes"
	"fmt"
	"time"

	"github.com/gpurun/gpurun/launcher/mask"

	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/strategy/cause"
)

const (
	foldDelay   = 500 * time.Millisecond // how long an unfinished traceback is held back
	foldLongest = 128 << 10              // bytes; a longer traceback is shown unchanged
	foldWidth   = 160                    // characters that are shown of the exception
)

// A tracebackFold shortens each traceback of a memory error to one line: gpurun or the job reacts to
// it, and eight tracebacks of eight ranks would fill the screen. All others pass unchanged. The
// log file has all of them.
type tracebackFold struct {
	rank  int
	path  string // of the log file
	mask  *mask.Masker
	held  []byte // a traceback whose exception has not come yet
	open  bool   // it began within a line, behind a progress bar
	since time.Time
}

var (
	// ofRank matches torch.distributed's prefix of a traceback's lines.
	ofRank = lazy.Regexp(`^\[rank\d+\]:(?: |$)`)
	// chained are the sentences between the tracebacks of chained exceptions.
	chained = [][]byte{[]byte("During handling of the above exception, another exception occurred:"), []byte("The above exception was the direct cause of the following exception:")}
	opening = []byte("Traceback (most recent call last):")
)

// add adds whole units, and returns what to show of them and of what was held back.
func (f *tracebackFold) add(p []byte, now time.Time) (shown []byte) {
	for line := range bytes.Lines(p) {
		if i := bytes.Index(line, opening); i > 0 && len(f.held) == 0 && !ofRank().Match(line) && len(bytes.TrimSpace(line[i:])) == len(opening) {
			shown = append(shown, line[:i]...)
			line, f.open = line[i:], true
		}
		text := ofRank().ReplaceAll(bytes.TrimRight(line, "\r\n"), nil)
		switch {
		case len(f.held) == 0 && !bytes.HasPrefix(text, opening):
			shown = append(shown, line...)
		case len(f.held)+len(line) > foldLongest:
			shown = append(append(shown, f.release()...), line...)
		case len(f.held) == 0 || goesOn(text):
			if len(f.held) == 0 {
				f.since = now
			}
			f.held = append(f.held, line...)
		default:
			open := f.open
			whole := append(f.release(), line...)
			if isMemory(whole) {
				whole = f.brief(text, open)
			}
			shown = append(shown, whole...)
		}
	}
	return shown
}

// release returns what was held back.
func (f *tracebackFold) release() []byte {
	held := f.held
	f.held, f.open = nil, false
	return held
}

// brief is the line that replaces a traceback, after the end of an open line.
func (f *tracebackFold) brief(exception []byte, open bool) []byte {
	end := ""
	if open {
		end = "\n"
	}
	return fmt.Appendf(nil, "%sgpurun: rank %d: %s (traceback in %s)\n", end, f.rank, f.mask.Line(string(exception), foldWidth), mask.TerminalLine(f.path))
}

// goesOn reports whether a line is part of a traceback before its exception.
func goesOn(text []byte) bool {
	if len(text) == 0 || text[0] == ' ' || text[0] == '\t' || bytes.HasPrefix(text, opening) {
		return true
	}
	for _, sentence := range chained {
		if bytes.Equal(text, sentence) {
			return true
		}
	}
	return false
}

// isMemory reports whether a traceback is of a memory error.
func isMemory(traceback []byte) (memory bool) {
	scanner := cause.NewScanner("stderr")
	scanner.OnFinding = func(seen cause.Finding) {
		memory = memory || seen.Raised && seen.Code.OutOfMemory()
	}
	scanner.Write(traceback) // It never fails.
	scanner.Close()
	return memory
}
