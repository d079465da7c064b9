package python

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/ranks"
)

// awaitFile waits for a file that a process renames into place.
func awaitFile(t *testing.T, path string) string {
	t.Helper()
	for range 6000 { // two minutes, for what never comes
		if text, err := os.ReadFile(path); err == nil {
			return string(text)
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("%s does not come", path)
	return ""
}

func TestMain(m *testing.M) {
	ranks.MaybeGuard()
	goleak.VerifyTestMain(m)
}

// anyPython is a Python 3; it imports nothing that is not its own.
func anyPython(t *testing.T, env commandline.Environ) *Interpreter {
	t.Helper()
	path := os.Getenv("GPURUN_TEST_PYTHON")
	if path == "" {
		found, err := exec.LookPath("python3")
		if err != nil {
			t.Skip("no python3 in PATH, and GPURUN_TEST_PYTHON names none")
		}
		path = found
	}
	return At(path, t.TempDir(), commandline.ParseEnviron(os.Environ()).With(env))
}

// hangs starts a child in a separate session, writes down both, and waits.
const hangs = `
import os, subprocess, sys, time
child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
with open(sys.argv[1] + ".new", "w") as f:
    f.write("%d %d" % (os.getpid(), child.pid))
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(1000)`

// A process that hangs is killed when its time is over, and with it what it started, in
// whatever session.
func TestAHangingChildIsKilledWithItsDescendants(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "pids")
	by := anyPython(t, nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	over := errors.New("over")
	var pids [2]int
	go func() {
		if _, err := fmt.Sscan(awaitFile(t, mark), &pids[0], &pids[1]); err != nil {
			t.Error(err)
		}
		cancel(over)
	}()
	try := Trial{Text: hangs, Words: [][]string{{mark}}}
	if _, err := Run[Together](ctx, by, try); !errors.Is(err, over) {
		t.Errorf("%v, want %v", err, over)
	}
	for _, pid := range pids {
		if err := unix.Kill(pid, 0); !errors.Is(err, unix.ESRCH) {
			t.Errorf("process %d: %v", pid, err)
		}
	}
}

// One that had no time to import PyTorch says nothing of what it was to try.
func TestNotReadyInTime(t *testing.T) {
	by := anyPython(t, nil)
	for words, want := range map[string]error{"busy": ErrBusy, Ready: context.DeadlineExceeded} {
		mark := filepath.Join(t.TempDir(), "mark")
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			awaitFile(t, mark)
			cancel(context.DeadlineExceeded)
		}()
		text := "import sys, time; print(sys.argv[1], file=sys.stderr, flush=True); open(sys.argv[2], 'w').close(); time.sleep(1000)"
		try := Trial{Text: text, Words: [][]string{{words, mark}}}
		if _, err := Run[Together](ctx, by, try); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", words, err, want)
		}
	}
}

// One that fails takes the others along, which wait for it; its words are the error.
func TestFailureEndsTheOtherProcesses(t *testing.T) {
	begin := time.Now()
	by := anyPython(t, nil)
	text := "import sys, time\nif sys.argv[1] == '1':\n  print('NCCL WARN a', file=sys.stderr)\n  sys.exit('the reason')\ntime.sleep(1000)"
	_, err := Run[struct{}](t.Context(), by, Trial{Text: text, Words: [][]string{{"0"}, {"1"}}})
	if err == nil || err.Error() != "the reason" || !strings.Contains(WordsOf(err), "NCCL WARN a") {
		t.Errorf("%v, of %q", err, WordsOf(err))
	}
	if took := time.Since(begin); took > 2*time.Minute {
		t.Errorf("took %s", took)
	}
}

// What is no answer is an error.
func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		said ranks.ProcessResult
		want string // the error
	}{
		{ranks.ProcessResult{Out: `{"sum": true}` + "\n"}, ""},
		{ranks.ProcessResult{Out: "noise\n" + `{"sum": true}`, Err: "a warning"}, ""},
		{ranks.ProcessResult{}, "its output is not an answer"},
		{ranks.ProcessResult{Out: `{"sum": true}`, Code: 3}, "ended with code 3"},
		{ranks.ProcessResult{Code: 3, Err: "Traceback\n" + strings.Repeat("y", 9999) + "\n"}, strings.Repeat("y", longestWords) + " …"},
		{ranks.ProcessResult{Signal: 11, Err: "words"}, "ended by signal 11"},
	} {
		if err := decode(c.said, &Together{}); err != nil && err.Error() != c.want || err == nil && c.want != "" {
			t.Errorf("%+v: %v, want %q", c.said, err, c.want)
		}
	}
}

// A variable that a script takes away is not there, and another is.
func TestTrialVariables(t *testing.T) {
	type answer struct{ Gone, New string }
	text := "import json, os; print(json.dumps({'gone': os.environ.get('GONE', 'gone'), 'new': os.environ['NEW']}))"
	s := Trial{Text: text, Words: [][]string{nil}, Env: commandline.Environ{"GONE": "", "NEW": "new"}}
	got, err := Run[answer](t.Context(), anyPython(t, commandline.Environ{"GONE": "1"}), s)
	if err != nil || got[0] != (answer{"gone", "new"}) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestNCCLFix(t *testing.T) {
	for words, want := range map[string]string{
		"write to /dev/shm/nccl-1 failed: No space left on device": MoreShared, "Call to ibv_reg_mr failed": MoreLocked, "CUDA driver version is insufficient": OtherBuild, "connect timed out": "",
	} {
		if got := NCCLFix(words); got != want {
			t.Errorf("%q: %q, want %q", words, got, want)
		}
	}
}
