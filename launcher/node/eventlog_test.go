package node

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// full is a run directory on a disk without room.
type full struct{ kept }

func (f *full) refuse() error {
	return &os.PathError{Op: "write", Path: filepath.Join(f.dir, "journal.jsonl"), Err: syscall.ENOSPC}
}
func (f *full) Append(launcher.Event) error   { return f.refuse() }
func (f *full) Prepare(int) (string, error)   { return "", f.refuse() }
func (f *full) Finish(launcher.Verdict) error { return f.refuse() }
func (f *full) Draft(launcher.Verdict) error  { return f.refuse() }
func (f *full) Write(string, strategy.Plan, strategy.Command) error {
	return &os.PathError{Op: "open", Path: "/home/conf", Err: syscall.ENOENT}
}

// What the run directory refuses carries its exit code; a file of the job does not.
func TestTheEventLogsErrorsHaveACode(t *testing.T) {
	l := OpenEventLog(&full{kept{dir: "/runs/r"}})
	defer l.Close()
	_, prepare := l.Prepare(1)
	for name, err := range map[string]error{"append": l.Append(launcher.Began{}), "prepare": prepare, "draft": l.Draft(launcher.Verdict{}), "finish": l.Finish(launcher.Verdict{})} {
		if errext.Code(err, 0) != strategy.CodeRunDir || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(errext.Hint(err), "--run-dir") {
			t.Errorf("%s: %v, code %d", name, err, errext.Code(err, 0))
		}
	}
	if err := l.Write("/runs/r/attempt-1", nil, strategy.Command{}); errext.Code(err, 0) != 0 || err == nil {
		t.Errorf("write: %v, code %d", err, errext.Code(err, 0))
	}
}

// A notice is journaled soon, and never after the verdict.
func TestNotices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &kept{dir: t.TempDir()}
		l := OpenEventLog(store)
		l.Note("before")
		synctest.Wait()
		if err := l.Append(launcher.Ended{Evidence: strategy.Evidence{Attempt: 3}}); err != nil {
			t.Fatal(err)
		}
		if last := l.Last(); last.Attempt != 3 {
			t.Errorf("the last attempt is %d", last.Attempt)
		}
		if err := l.Finish(launcher.Verdict{}); err != nil {
			t.Fatal(err)
		}
		l.Note("after")
		synctest.Wait()
		l.Close()
		if got := store.notices(); len(got) != 1 || got[0] != "before" {
			t.Errorf("notices %q", got)
		}
	})
}

// lost is a run directory that disappears.
type lost struct {
	kept
	gone atomic.Bool
}

func (l *lost) Check() error {
	if l.gone.Load() {
		return os.ErrNotExist
	}
	return nil
}

// A run directory that disappears is reported once, and soon, whether anything is to be
// journaled or not.
func TestLostRunDirectoryIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &lost{kept: kept{dir: "/runs/r"}}
		l := OpenEventLog(store)
		defer l.Close()
		time.Sleep(10 * checkInterval)
		if got := store.notices(); len(got) > 0 {
			t.Errorf("told %q of a directory that is there", got)
		}
		store.gone.Store(true)
		for range 10 { // the first of them is soon
			time.Sleep(checkInterval + checkInterval/4)
			if got := store.notices(); len(got) != 1 || !strings.Contains(got[0], "the run directory /runs/r has disappeared: the ranks continue") {
				t.Fatalf("told %q", got)
			}
		}
	})
}

// TestClockThatIsSetIsReported: a jump of a minute or more, in either direction.
func TestClockThatIsSetIsReported(t *testing.T) {
	before := time.Now()
	for jump, want := range map[time.Duration]string{
		0: "", time.Second: "", -30 * time.Second: "", 24 * time.Hour: "warning: the clock was put forward by 24h0m0s, ", -time.Hour: "warning: the clock was put back by 1h0m0s: ",
	} {
		got := clockSet(before, testenv.SetClock(t, before.Add(checkInterval), jump))
		if (got == "") != (want == "") || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", jump, got, want)
		}
	}
}
