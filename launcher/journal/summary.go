package journal

import (
	"bytes"
	"os"
	"slices"
	"time"

	"github.com/gpurun/gpurun/launcher"
)

// The sizes in bytes that Summary reads of the begin and the end of a journal. If the verdict is larger, it
// reads the second size.
const (
	summaryHead  = 16 << 10
	summaryTail  = 16 << 10
	summaryTail2 = 512 << 10
)

// Summary is like Outline for listing many runs: of a run that has ended, it reads only the first and the
// last lines. It returns the begin, the last attempt, whose command is that of the first, and the end.
func Summary(dir string) (events []launcher.Event, written time.Time, err error) {
	return readPart(dir, summaryOf)
}

// summaryOf returns the events of a run that has ended; nil if the run has not ended, or if its lines are
// longer.
func summaryOf(f *os.File, size int64) []launcher.Event {
	if size <= summaryHead+summaryTail {
		text, err := section(f, 0, size)
		if err != nil || !bytes.HasPrefix(text, opening) {
			return nil
		}
		return ends(text, text)
	}
	head, err := section(f, 0, summaryHead)
	if err != nil || !bytes.HasPrefix(head, opening) {
		return nil
	}
	for _, n := range []int64{summaryTail, summaryTail2} {
		tail, err := section(f, max(size-n, 0), size)
		if err != nil {
			return nil
		}
		if lines := bytes.Count(tail, []byte("\n")); lines > 1 {
			return ends(head, tail)
		}
	}
	return nil
}

func section(f *os.File, from, to int64) ([]byte, error) {
	text := make([]byte, to-from)
	_, err := f.ReadAt(text, from)
	return text, err
}

// ends makes the summary from the begin and the end of a journal.
func ends(head, tail []byte) []launcher.Event {
	var began launcher.Began
	var started launcher.Started
	var found bool
	first := func(e launcher.Event, _ time.Time) bool {
		switch e := e.(type) {
		case launcher.Began:
			if began.At.IsZero() {
				began = e
			}
		case launcher.Started:
			started, found = e, true
		}
		return !found
	}
	tail = bytes.TrimSuffix(tail, []byte("\n"))
	last := tail[bytes.LastIndexByte(tail, '\n')+1:]
	end, _, err := launcher.Decode(last)
	finished, over := end.(launcher.Finished)
	if err != nil || !over || finished.Since.IsZero() || walk(head, first) != nil || began.At.IsZero() {
		return nil
	}
	events := []launcher.Event{began}
	if !finished.Since.Equal(began.At) {
		began.At = finished.Since
		events = append(events, began)
	}
	if finished.Started > 0 {
		attempts := finished.Verdict.Attempts
		i := slices.IndexFunc(attempts, func(a launcher.AttemptSummary) bool { return a.N == finished.Started-1 })
		if !found || i < 0 {
			return nil
		}
		if started.N == 0 && attempts[i].N > 0 {
			events = append(events, started)
		}
		started.N, started.Plan = attempts[i].N, attempts[i].Plan
		events = append(events, started)
	}
	return append(events, finished)
}
