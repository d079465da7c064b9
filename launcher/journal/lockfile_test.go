package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/strategy"
)

// A lock file is held by one, is free again after its holder, and is taken from one
// that is dead: on this machine by its process, on another by its file's age.
func TestALockFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, holderFile)
	first, err := acquireFile(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := acquireFile(dir); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), fmt.Sprintf("pid %d", os.Getpid())) {
		t.Errorf("held by another: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}

	own, err := self()
	if err != nil {
		t.Fatal(err)
	}
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	gone, again, elsewhere, inside := own, own, own, own
	gone.PID, gone.Start = dead.Process.Pid, "1"
	again.Start = "1" // the number was given to another process since
	elsewhere.Boot, elsewhere.Host = "another", "n7"
	inside.Space = "pid:[1]"
	for name, test := range map[string]struct {
		left lockHolder
		age  time.Duration
		free bool
	}{
		"a dead process":           {gone, 0, true},
		"its number, another":      {again, 0, true},
		"another machine":          {elsewhere, 0, false},
		"another machine, silent":  {elsewhere, time.Hour, true},
		"another container":        {inside, 0, false},
		"another container, still": {inside, time.Hour, true},
	} {
		test.left.Token = name
		text, err := json.Marshal(test.left)
		if err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-test.age)
		if err := errors.Join(os.WriteFile(path, text, 0o600), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
		l, err := acquireFile(dir)
		if (err == nil) != test.free || err != nil && !errors.Is(err, ErrLocked) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			if err := l.Close(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// Of many that come upon a lock that was left behind, one takes it.
func TestOneTakesALockThatWasLeftBehind(t *testing.T) {
	for range 60 {
		dir := t.TempDir()
		if err := create(filepath.Join(dir, holderFile), lockHolder{Boot: "another", Token: "old"}); err != nil {
			t.Fatal(err)
		}
		old := time.Now().Add(-time.Hour)
		if err := os.Chtimes(filepath.Join(dir, holderFile), old, old); err != nil {
			t.Fatal(err)
		}
		var took atomic.Int32
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				if _, err := acquireFile(dir); err == nil { // held until the test's end
					took.Add(1)
				} else if !errors.Is(err, ErrLocked) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if took.Load() != 1 {
			t.Fatalf("%d hold it", took.Load())
		}
	}
}

// A directory that an earlier start of the same job holds is waited for, which people are
// told of once a minute, and then is a matter of trying again; any other is not.
func TestTheLockOfAnEarlierStartIsWaitedFor(t *testing.T) {
	const bound = 150 * time.Second
	for name, test := range map[string]struct {
		search RunSearch
		code   int
		took   time.Duration
		said   int
	}{
		"the same job's":       {RunSearch{Scheduler: "slurm 7", Restart: 2}, strategy.CodeRetry, bound, 3},
		"the same start's":     {RunSearch{Scheduler: "slurm 7", Restart: 1}, strategy.CodeUsage, 0, 0},
		"another job's":        {RunSearch{Scheduler: "slurm 8", Restart: 2}, strategy.CodeUsage, 0, 0},
		"without a scheduler":  {RunSearch{}, strategy.CodeUsage, 0, 0},
		"the job's first one?": {RunSearch{Scheduler: "slurm 7"}, strategy.CodeUsage, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir, earlier := heldByRestart1(t)
				defer earlier.Close()
				var said []string
				began := time.Now()
				_, _, err := test.search.OpenRun(t.Context(), dir, nil, LockWait{Bound: bound, Note: func(text string) { said = append(said, text) }})
				if !errors.Is(err, ErrLocked) || errext.Code(err, 0) != test.code || len(said) != test.said {
					t.Errorf("%v, code %d, said %q", err, errext.Code(err, 0), said)
				}
				if took := time.Since(began); took < test.took || took >= test.took+time.Second {
					t.Errorf("waited for %s, want %s", took, test.took)
				}
			})
		})
	}
	t.Run("it is given back", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			dir, earlier := heldByRestart1(t)
			began := time.Now()
			time.AfterFunc(90*time.Second, func() { earlier.Close() }) //nolint:errcheck // its events are synced
			j, events, err := RunSearch{Scheduler: "slurm 7", Restart: 2}.OpenRun(t.Context(), dir, nil, LockWait{})
			if err != nil || len(events) != 1 {
				t.Fatalf("%d events, %v", len(events), err)
			}
			if took := time.Since(began); took < 90*time.Second || took > 92*time.Second {
				t.Errorf("found after %s", took)
			}
			if err := j.Close(); err != nil {
				t.Error(err)
			}
		})
	})
}

// heldByRestart1 is a run directory that the first restart of Slurm's job 7 holds.
func heldByRestart1(t *testing.T) (dir string, holder *Journal) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "run")
	holder, _, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Append(launcher.Began{Run: "run", Scheduler: "slurm 7", Restart: 1}); err != nil {
		t.Fatal(err)
	}
	return dir, holder
}

// A batch script that runs another step first, or the same command several times, goes
// on with the run that each gpurun left.
func TestFindReadsLeftoversOfEachVersion(t *testing.T) {
	root := t.TempDir()
	begin(t, filepath.Join(root, "1"), "slurm 7")
	begin(t, filepath.Join(root, "2"), "slurm 7")
	begin(t, filepath.Join(root, "3"), "slurm 8")
	find := func(s RunSearch) string {
		t.Helper()
		s.Root = root
		dir, err := s.Find()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(dir); err != nil {
			return "" // a new one
		}
		j, _, err := s.OpenRun(t.Context(), dir, nil, LockWait{})
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		return filepath.Base(dir)
	}
	if got := find(RunSearch{Scheduler: "slurm 7", Restart: 1, Digest: "other"}); got != "" {
		t.Errorf("another job goes on with %s", got)
	}
	for restart := 1; restart <= 2; restart++ {
		again := RunSearch{Scheduler: "slurm 7", Restart: restart, Digest: ""}
		if got := [3]string{find(again), find(again), find(again)}; got != [3]string{"1", "2", ""} {
			t.Errorf("restart %d goes on with %q", restart, got)
		}
	}
	if got := find(RunSearch{Scheduler: "slurm 8", Restart: 1}); got != "3" {
		t.Errorf("a run of another job of the scheduler: %q", got)
	}
}
