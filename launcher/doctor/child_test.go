package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/environ"
	"github.com/gpurun/gpurun/launcher/proc"
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

// A process that hangs is killed when its time is over, and with it what it started, in
// whatever session.
func TestAHangingChildIsKilledWithItsDescendants(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "pids")
	p := withTorch(t, map[string]any{"hang": mark})
	ctx, cancel := context.WithCancelCause(t.Context())
	over := errors.New("over")
	var pids [2]int
	go func() {
		if _, err := fmt.Sscan(awaitFile(t, mark), &pids[0], &pids[1]); err != nil {
			t.Error(err)
		}
		cancel(over)
	}()
	if err := p.script(ctx, script{text: factsScript, words: [][]string{nil}}, &torchFacts{}); !errors.Is(err, over) {
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
	p := withTorch(t, nil)
	for words, want := range map[string]error{"busy": errBusy, ready: context.DeadlineExceeded} {
		mark := filepath.Join(t.TempDir(), "mark")
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			awaitFile(t, mark)
			cancel(context.DeadlineExceeded)
		}()
		text := "import sys, time; print(sys.argv[1], file=sys.stderr, flush=True); open(sys.argv[2], 'w').close(); time.sleep(1000)"
		if err := p.script(ctx, script{text: text, words: [][]string{{words, mark}}}, &together{}); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", words, err, want)
		}
	}
}

// One that fails takes the others along, which wait for it; its words are the error.
func TestAFailureEndsTheOthers(t *testing.T) {
	begin := time.Now()
	p := withTorch(t, nil)
	text := "import sys, time\nif sys.argv[1] == '1':\n  print('NCCL WARN a', file=sys.stderr)\n  sys.exit('the reason')\ntime.sleep(1000)"
	err := p.script(t.Context(), script{text: text, words: [][]string{{"0"}, {"1"}}}, &struct{}{}, &struct{}{})
	if err == nil || err.Error() != "the reason" || !strings.Contains(wordsOf(err), "NCCL WARN a") {
		t.Errorf("%v, of %q", err, wordsOf(err))
	}
	if took := time.Since(begin); took > 2*time.Minute {
		t.Errorf("took %s", took)
	}
}

// What a process says is bounded, and what is no answer is an error.
func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		said said
		want string // the error
	}{
		{said{out: `{"sum": true}` + "\n"}, ""},
		{said{out: "noise\n" + `{"sum": true}`, err: "a warning"}, ""},
		{said{}, "what it prints is no answer"},
		{said{out: `{"sum": true}`, code: 3}, "ended with code 3"},
		{said{code: 3, err: "Traceback\n" + strings.Repeat("y", 9999) + "\n"}, strings.Repeat("y", longestWords) + " …"},
		{said{signal: 11, err: "words"}, "ended by signal 11"},
	} {
		if err := c.said.decode(&together{}); err != nil && err.Error() != c.want || err == nil && c.want != "" {
			t.Errorf("%+v: %v, want %q", c.said, err, c.want)
		}
	}
	flood := proc.Rank{Argv: []string{"head", "-c", "20000000", "/dev/zero"}, Env: os.Environ()}
	all, err := start(t.Context(), []proc.Rank{flood})
	if err != nil || len(all[0].out) != largest || all[0].code != 0 {
		t.Errorf("%d bytes with code %d, %v", len(all[0].out), all[0].code, err)
	}
	if _, err := start(t.Context(), []proc.Rank{{Argv: []string{"no-such-program"}}}); err == nil {
		t.Error("a program that is not there started")
	}
}

// A variable that a script takes away is not there, and another is.
func TestScriptVariables(t *testing.T) {
	p := withTorch(t, nil)
	t.Setenv("GONE", "1")
	p.env["GONE"] = "1"
	var got struct{ Gone, New string }
	text := "import json, os; print(json.dumps({'gone': os.environ.get('GONE', 'gone'), 'new': os.environ['NEW']}))"
	p.python = pythonAt(p)
	if err := p.script(t.Context(), script{text: text, words: [][]string{nil}, env: environ.Vars{"GONE": "", "NEW": "new"}}, &got); err != nil || got.Gone != "gone" || got.New != "new" {
		t.Errorf("%+v, %v", got, err)
	}
}
