package launcher

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// short is a Starter's error on a machine that is short of resources.
var short = errext.WithCode(errext.WithHint(fmt.Errorf("start rank 1: %w", syscall.EAGAIN), "see ulimit -a"), strategy.CodeRetry)

func outOfMemoryOnce() []script {
	oom := script{acts: []act{raised(time.Minute, 0, cause.CUDAOOM), exit(time.Minute, 0, 1)}}
	trained := script{acts: []act{exit(time.Hour, 0, 0), exit(time.Hour, 1, 0)}}
	return []script{oom, trained, trained, trained}
}

// A later attempt that cannot be started ends the run with a verdict, which shows whether waiting helps, and
// with a closed journal.
func TestALaterAttemptThatCannotBeStarted(t *testing.T) {
	for name, test := range map[string]struct {
		err     error
		outcome strategy.Outcome
		code    int
		reason  string
	}{
		"vanished":      {errext.WithCode(&fs.PathError{Op: "exec", Path: "./train", Err: syscall.ENOENT}, strategy.CodeUsage), strategy.Failed, 1, "exec ./train: no such file or directory"},
		"no code":       {errors.New("this and\nthat"), strategy.Failed, 1, "this and; that"},
		"short":         {short, strategy.Retry, 75, "start rank 1: resource temporarily unavailable"},
		"run directory": {RunDirError("/run", &fs.PathError{Op: "open", Path: "/run/attempt-1/rank0/stdout.log", Err: syscall.EROFS}), strategy.Retry, 74, "open /run/attempt-1/rank0/stdout.log: read-only file system"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &stage{t: t, scripts: outOfMemoryOnce(), refuse: map[int]error{1: test.err}}
				v, err := newLauncher(s).Run(t.Context(), first())
				if err != nil || v.Outcome != test.outcome || v.Code != test.code || v.Reason != "attempt 1 could not be started: "+test.reason {
					t.Fatalf("verdict %+v, %v", v, err)
				}
				if hint := s.events[4].(Ended).Evidence.Unstarted.Hint; hint != errext.Hint(test.err) {
					t.Errorf("hint %q", hint)
				}
				if len(v.Attempts) != 2 || v.Attempts[1].N != 1 || v.Attempts[1].Error != test.reason {
					t.Errorf("attempts %+v", v.Attempts)
				}
				one := []string{"started", "ended", "decided"}
				if diff := cmp.Diff(append(append(one, one...), "finished"), kinds(s.events)); diff != "" {
					t.Error(diff)
				}
				if s.asked != 2 {
					t.Errorf("the inventory was taken %d times for 2 decisions", s.asked)
				}
				goesOn(t, s, test.outcome)
			})
		})
	}
}

// goesOn checks that a run with this end is done, or continues with the plan that was not tried.
func goesOn(t *testing.T, s *stage, outcome strategy.Outcome) {
	t.Helper()
	state, done := Resume(plan0, "r", s.events)
	if done != (outcome == strategy.Failed) {
		t.Errorf("done %v after outcome %q", done, outcome)
	}
	if done {
		return
	}
	again := &stage{t: t, scripts: s.scripts}
	v, err := newLauncher(again).Run(t.Context(), state)
	if err != nil || v.Outcome != strategy.Trained || len(v.Attempts) != 3 || v.Attempts[2].N != 2 {
		t.Errorf("verdict %+v, %v", v, err)
	}
	if diff := cmp.Diff([]strategy.Plan{s.applied[1]}, again.applied); diff != "" {
		t.Error(diff)
	}
}

// As long as no rank was ever started, the result is an error and no verdict, even if the same run is started
// again.
func TestNothingWasEverStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, scripts: outOfMemoryOnce(), refuse: map[int]error{0: short, 1: short}}
		state := first()
		for n := range 2 {
			_, err := newLauncher(s).Run(t.Context(), state)
			if !errors.Is(err, syscall.EAGAIN) || errext.Code(err, 0) != strategy.CodeRetry || !strings.HasPrefix(err.Error(), fmt.Sprintf("start attempt %d: ", n)) {
				t.Errorf("error %v", err)
			}
			var done bool
			if state, done = Resume(plan0, "r", s.events); done || len(state.History) != 0 || state.Next.N != n+1 {
				t.Fatalf("done %v, state %+v", done, state)
			}
		}
		if diff := cmp.Diff([]string{"started", "ended", "started", "ended"}, kinds(s.events)); diff != "" {
			t.Error(diff)
		}
		s.scripts[2] = s.scripts[1]
		if v, err := newLauncher(s).Run(t.Context(), state); err != nil || v.Outcome != strategy.Trained || len(v.Attempts) != 1 {
			t.Errorf("verdict %+v, %v", v, err)
		}
	})
}

// A plan that cannot be applied after attempt 0 ran ends the run like a plan that cannot be started, and its
// number is used up.
func TestAPlanThatCannotBeApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, scripts: outOfMemoryOnce()}
		l := newLauncher(s)
		l.Recipe = brokenAfterFirst{s}
		v, err := l.Run(t.Context(), first())
		if err != nil || v.Outcome != strategy.Failed || v.Reason != "attempt 1 could not be started: apply the plan: no such key" {
			t.Fatalf("verdict %+v, %v", v, err)
		}
		if state, _ := Resume(plan0, "r", s.events); state.Next.N != 2 {
			t.Errorf("the next attempt is %d", state.Next.N)
		}
	})
}

// brokenAfterFirst applies one plan.
type brokenAfterFirst struct{ stage *stage }

func (b brokenAfterFirst) Apply(p strategy.Plan, by strategy.Arguments, checkpoint, dir string) (strategy.Command, error) {
	if len(b.stage.applied) > 0 {
		return strategy.Command{}, errors.New("no such key")
	}
	return b.stage.Apply(p, by, checkpoint, dir)
}

// A signal that comes before ranks run ends the run with its verdict.
func TestASignalBeforeTheRanksRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(&Signal{Number: syscall.SIGINT})
		v, err := newLauncher(s).Run(ctx, first())
		if err != nil || v.Outcome != strategy.Stopped || v.Code != 130 {
			t.Fatalf("verdict %+v, %v", v, err)
		}
		if diff := cmp.Diff([]string{"finished"}, kinds(s.events)); diff != "" {
			t.Error(diff)
		}
	})
}

// An error about another path belongs to the job. An event that cannot be encoded is a bug.
func TestRunDirError(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		code int
	}{
		"a file in it":     {&fs.PathError{Op: "open", Path: "/runs/r/lock", Err: syscall.EACCES}, 74},
		"itself":           {&fs.PathError{Op: "mkdir", Path: "/runs/r", Err: syscall.EROFS}, 74},
		"a folder above":   {&fs.PathError{Op: "mkdir", Path: "/runs", Err: syscall.ENOTDIR}, 74},
		"a link into it":   {&os.LinkError{Op: "symlink", Old: "/home/conf", New: "/runs/r/attempt-0/conf", Err: syscall.ENOSPC}, 74},
		"no path":          {fmt.Errorf("lock: %w", syscall.ENOLCK), 74},
		"the user's":       {&fs.PathError{Op: "open", Path: "/home/conf", Err: syscall.ENOENT}, 0},
		"a shorter name":   {&fs.PathError{Op: "open", Path: "/run", Err: syscall.ENOENT}, 0},
		"a similar name":   {&fs.PathError{Op: "open", Path: "/runs/r2/lock", Err: syscall.EACCES}, 0},
		"has its own code": {errext.WithCode(&fs.PathError{Op: "open", Path: "/runs/r/lock", Err: syscall.EACCES}, 75), 75},
		"a bug":            {errors.New("json: unsupported value: NaN"), 70},
	} {
		if got := errext.Code(RunDirError("/runs/r", test.err), 0); got != test.code {
			t.Errorf("%s: code %d, want %d", name, got, test.code)
		}
	}
	if err := RunDirError("/runs/r", nil); err != nil {
		t.Error(err)
	}
}
