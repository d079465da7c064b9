package node

import (
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/system"
	"github.com/gpurun/gpurun/strategy"
)

// stacksFile is where SIGQUIT writes gpurun's own stacks, in the run directory.
const stacksFile = "stacks.txt"

// A RunDir is the run directory, which has one writer. journal.Journal implements it.
type RunDir interface {
	launcher.Store
	// Dir is the run directory's path.
	Dir() string
	// Check returns an error if the directory has disappeared.
	Check() error
	Close() error
}

// An EventLog lets several goroutines write the journal: the launcher's loop, which waits until each event is
// on disk, and goroutines that write a note and must not wait for a disk. Its errors have the exit code of a
// run directory that cannot be written.
type EventLog struct {
	store RunDir
	notes chan string
	over  chan struct{}
	owner sync.WaitGroup

	mu       sync.Mutex        // held over each event; guards what follows
	last     strategy.Evidence // evidence of the attempt that ended last
	finished bool              // the verdict has been written
}

// OpenEventLog takes over a run directory, which Close closes.
func OpenEventLog(store RunDir) *EventLog {
	l := &EventLog{store: store, notes: make(chan string, 64), over: make(chan struct{})}
	l.owner.Go(l.serve)
	return l
}

// checkInterval bounds the delay of the warning that the run directory has disappeared.
const checkInterval = time.Second

func (l *EventLog) serve() {
	check, before := time.NewTicker(checkInterval), time.Now()
	defer check.Stop()
	for {
		select {
		case text := <-l.notes:
			l.notice(text)
		case <-check.C:
			now := time.Now()
			if text := clockSet(before, now); text != "" {
				l.notice(text)
			}
			before = now
			if err := l.store.Check(); err != nil {
				check.Stop()
				l.notice(fmt.Sprintf("warning: the run directory %s has disappeared: the ranks continue, and no further attempt is started", l.store.Dir()))
			}
		case <-l.over:
			return
		}
	}
}

// clockSet returns a warning if the wall clock was set between two moments, else nothing. Small steps correct a
// clock.
func clockSet(before, now time.Time) string {
	switch by := (now.Round(0).Sub(before.Round(0)) - now.Sub(before)).Round(time.Second); {
	case by >= time.Minute:
		return fmt.Sprintf("warning: the clock was put forward by %s, or the machine was suspended: the durations of attempts do not include that", by)
	case by <= -time.Minute:
		return fmt.Sprintf("warning: the clock was put back by %s: checkpoints whose files look older than the run are not resumed", -by)
	}
	return ""
}

// Note journals and shows a notice soon. The notice is lost if too many wait, or after the verdict.
func (l *EventLog) Note(text string) {
	select {
	case l.notes <- text:
	default:
	}
}

func (l *EventLog) notice(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.finished {
		return
	}
	// The loop's next event meets the same error, and ends the run if it must.
	_ = l.store.Append(launcher.Noticed{Text: text})
}

// Close closes the journal. Later notices are lost.
func (l *EventLog) Close() {
	close(l.over)
	l.owner.Wait()
	l.store.Close() // no data is lost: every event was synced
}

// Append journals an event.
func (l *EventLog) Append(e launcher.Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ended, ok := e.(launcher.Ended); ok {
		l.last = ended.Evidence
	}
	return l.refused(l.store.Append(e))
}

// Last is the evidence of the attempt that ended last.
func (l *EventLog) Last() strategy.Evidence {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

func (l *EventLog) refused(err error) error { return launcher.RunDirError(l.store.Dir(), err) }

// Prepare makes the folder of an attempt.
func (l *EventLog) Prepare(n int) (string, error) {
	dir, err := l.store.Prepare(n)
	return dir, l.refused(err)
}

// Write puts an attempt's plan and files into its folder.
func (l *EventLog) Write(dir string, plan strategy.Plan, c strategy.Command) error {
	l.mu.Lock() // before the lock: it may append a notice
	defer l.mu.Unlock()
	return l.refused(l.store.Write(dir, plan, c))
}

// Draft writes how the run ends if gpurun is killed before it can finish.
func (l *EventLog) Draft(v launcher.Verdict) error { return l.refused(l.store.Draft(v)) }

// Finish writes the verdict. Notices that come later are lost.
func (l *EventLog) Finish(v launcher.Verdict) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.finished = true
	return l.refused(l.store.Finish(v))
}

// writeStacks writes the stacks of all goroutines into the run directory.
func (l *EventLog) writeStacks() (path string, err error) {
	text := make([]byte, 1<<20)
	text = text[:runtime.Stack(text, true)]
	head := fmt.Sprintf("%d goroutines\n\n", runtime.NumGoroutine())
	path = filepath.Join(l.store.Dir(), stacksFile)
	if err := system.WriteFile(path, append([]byte(head), text...), system.PrivateMode); err != nil {
		return "", fmt.Errorf("write the stacks: %w", err)
	}
	return path, nil
}
