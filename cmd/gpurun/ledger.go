package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/strategy"
)

// stacksFile is where SIGQUIT writes gpurun's own stacks, in the run directory.
const stacksFile = "stacks.txt"

// A ledger is the journal as several goroutines use it: the launcher's loop, which
// waits until each event is on disk, and those that only have something to tell
// and must not wait for a disk. Its errors carry the exit code of a run directory
// that cannot be written.
type ledger struct {
	store *journal.Journal
	notes chan string
	over  chan struct{}
	owner sync.WaitGroup

	mu       sync.Mutex        // held over each event; guards what follows
	last     strategy.Evidence // of the attempt that ended last
	finished bool              // the verdict is the last word
}

// openLedger takes over a journal, which close closes.
func openLedger(store *journal.Journal) *ledger {
	l := &ledger{store: store, notes: make(chan string, 64), over: make(chan struct{})}
	l.owner.Go(func() {
		for {
			select {
			case text := <-l.notes:
				l.tell(text)
			case <-l.over:
				return
			}
		}
	})
	return l
}

// note journals and shows a notice soon. It is lost where too many wait, and after
// the verdict.
func (l *ledger) note(text string) {
	select {
	case l.notes <- text:
	default:
	}
}

func (l *ledger) tell(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.finished {
		return
	}
	// The loop's next event meets the same disk, and ends the run where it has to.
	_ = l.store.Append(launcher.Noticed{Text: text})
}

// close ends the notices and the journal.
func (l *ledger) close() {
	close(l.over)
	l.owner.Wait()
	l.store.Close() // every event was synced
}

// Append journals an event.
func (l *ledger) Append(e launcher.Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ended, ok := e.(launcher.Ended); ok {
		l.last = ended.Evidence
	}
	return runDirError(l.store.Append(e))
}

// Prepare makes the folder of an attempt.
func (l *ledger) Prepare(n int) (string, error) {
	dir, err := l.store.Prepare(n)
	return dir, runDirError(err)
}

// Write puts an attempt's plan and files into its folder.
func (l *ledger) Write(dir string, plan strategy.Plan, c launcher.Command) error {
	return runDirError(l.store.Write(dir, plan, c))
}

// Finish writes the verdict. Notices that come later are lost.
func (l *ledger) Finish(v launcher.Verdict) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.finished = true
	return runDirError(l.store.Finish(v))
}

// writeStacks writes what each goroutine does into the run directory.
func (l *ledger) writeStacks() (path string, err error) {
	text := make([]byte, 1<<20)
	text = text[:runtime.Stack(text, true)]
	head := fmt.Sprintf("%d goroutines\n\n", runtime.NumGoroutine())
	path = filepath.Join(l.store.Dir(), stacksFile)
	if err := os.WriteFile(path, append([]byte(head), text...), 0o644); err != nil {
		return "", fmt.Errorf("write the stacks: %w", err)
	}
	return path, nil
}

// A noter is a slog.Handler that makes notices of what a package reports.
type noter struct{ ledger *ledger }

// Enabled is true from warnings on.
func (h noter) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

// Handle makes one notice of a record.
func (h noter) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString("warning: " + r.Message)
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, ", %s %v", a.Key, a.Value)
		return true
	})
	h.ledger.note(b.String())
	return nil
}

// WithAttrs and WithGroup are not needed by what reports here.
func (h noter) WithAttrs([]slog.Attr) slog.Handler { return h }

// WithGroup returns the handler itself.
func (h noter) WithGroup(string) slog.Handler { return h }
