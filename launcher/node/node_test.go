package node

import (
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/ranks"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/strategy"
)

// TestMain lets the test binary be the guard of the ranks that it starts.
func TestMain(m *testing.M) {
	ranks.MaybeGuard()
	os.Setenv("XDG_CACHE_HOME", os.DevNull) // nothing is left in a home
	os.Exit(m.Run())
}

// kept is a run directory whose journal is a list.
type kept struct {
	dir    string
	mu     sync.Mutex
	events []launcher.Event
}

func (k *kept) Append(e launcher.Event) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.events = append(k.events, e)
	return nil
}

func (k *kept) Prepare(int) (string, error) {
	dir := filepath.Join(k.dir, "attempt-0")
	return dir, os.MkdirAll(dir, 0o755)
}

func (k *kept) Write(string, strategy.Plan, strategy.Command) error { return nil }
func (k *kept) Finish(launcher.Verdict) error                       { return nil }
func (k *kept) Draft(launcher.Verdict) error                        { return nil }
func (k *kept) Dir() string                                         { return k.dir }
func (k *kept) Close() error                                        { return nil }
func (k *kept) Check() error                                        { return nil }

func (k *kept) notices() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var texts []string
	for _, e := range k.events {
		if n, ok := e.(launcher.Noticed); ok {
			texts = append(texts, n.Text)
		}
	}
	return texts
}

// fixture is a job of two ranks in a folder, and all that launches it.
type fixture struct {
	dir     string
	store   *kept
	log     *EventLog
	signals *Signals
	opts    Options
}

func newFixture(t *testing.T, script string) *fixture {
	t.Helper()
	f := &fixture{dir: t.TempDir(), store: &kept{dir: t.TempDir()}}
	if err := os.WriteFile(filepath.Join(f.dir, "train.sh"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.log = OpenEventLog(f.store)
	_, f.signals = Listen(t.Context())
	t.Cleanup(func() {
		f.signals.Close()
		f.log.Close()
		signal.Reset()
		null.Close()
	})
	f.opts = Options{
		Run: "run", Ranks: 2, Argv: func(words []string, _ int) []string { return words }, Env: commandline.ParseEnviron(os.Environ()), Workdir: f.dir,
		Grace: time.Second, Output: Console{Stdin: null, TTY: "never", OutputOptions: ranks.OutputOptions{Stdout: null, Stderr: null, Role: "default"}},
	}
	return f
}

// launch is one of ./train.sh on this node alone.
func (f *fixture) launch(n int, dir string) launcher.Launch {
	return launcher.Launch{N: n, Dir: dir, Command: strategy.Command{Argv: []string{"./train.sh"}}, Meeting: launcher.Meeting{Nodes: 1, World: f.opts.Ranks, Addr: "127.0.0.1", Port: 29500}}
}

// start starts attempt 0 in a new folder.
func (f *fixture) start(t *testing.T) (launcher.Attempt, error) {
	t.Helper()
	dir, err := f.store.Prepare(0)
	if err != nil {
		t.Fatal(err)
	}
	return New(f.opts, f.log, f.signals).Start(t.Context(), f.launch(0, dir))
}

// await asks again and again. The bound is for what never comes; nothing that comes waits
// for it.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("waited in vain for %s", what)
}

// A rank that ends well while others continue is reported, and the job continues.
func TestEarlyEndOfARankIsReported(t *testing.T) {
	f := newFixture(t, "#!/bin/sh\n[ $RANK = 1 ] || until [ -e go-on ]; do sleep 0.02; done\n")
	f.opts.Early = 20 * time.Millisecond
	a, err := f.start(t)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan []int, 1)
	go func() {
		var codes []int
		for fact := range a.Facts() {
			if fact.Exit() != nil {
				codes = append(codes, fact.Exit().Code)
			}
		}
		done <- codes
	}()
	want := "warning: rank 1 ended with exit code 0 20ms ago, and 1 of 2 are still running; if they wait for it in a collective, the job hangs"
	await(t, "the notice", func() bool { n := f.store.notices(); return len(n) == 1 && n[0] == want })
	if err := os.WriteFile(filepath.Join(f.dir, "go-on"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if codes := <-done; len(codes) != 2 || codes[0] != 0 || codes[1] != 0 {
		t.Errorf("exit codes %v", codes)
	}
}

// Each rank gets its place; a job that is one process gets none, and of what
// torchrun sets nothing unless it is a launcher itself.
func TestVariablesOfARank(t *testing.T) {
	const script = "#!/bin/sh\nenv >env${RANK:--}.new; mv env${RANK:--}.new env${RANK:--}\n"
	for _, own := range []struct{ plain, launcher bool }{{false, false}, {true, true}, {true, false}} {
		plain := own.plain
		f := newFixture(t, script)
		f.opts.Plain, f.opts.Launcher = own.plain, own.launcher
		for _, name := range []string{"RANK", "WORLD_SIZE", "MASTER_PORT"} {
			delete(f.opts.Env, name)
		}
		a, err := f.start(t)
		if err != nil {
			t.Fatal(err)
		}
		drain(a.Facts())
		file, want := "env1", []string{"RANK=1", "LOCAL_RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "TORCHELASTIC_RUN_ID=run.0", "TORCHELASTIC_RESTART_COUNT=0", "ROLE_NAME=default"}
		switch {
		case plain && !own.launcher:
			file, want = "env-", []string{"TORCHELASTIC_ERROR_FILE=", "LOCAL_RANK=", "TORCHELASTIC_RUN_ID=", "MASTER_ADDR=", "ROLE_NAME=", "TORCHELASTIC_USE_AGENT_STORE="}
		case plain:
			file, want = "env-", []string{"TORCHELASTIC_ERROR_FILE=" + filepath.Join(f.store.dir, "attempt-0", "rank0", "error.json")}
		}
		text, err := os.ReadFile(filepath.Join(f.dir, file))
		if err != nil {
			t.Fatal(err)
		}
		words := strings.Split(string(text), "\n")
		told := commandline.ParseEnviron(words)
		for _, word := range want {
			name, value, _ := strings.Cut(word, "=")
			if told[name] != value {
				t.Errorf("plain %v: %s is %q, want %q", plain, name, told[name], value)
			}
		}
		if _, set := told.Lookup("MASTER_PORT"); set == plain {
			t.Errorf("plain %v: MASTER_PORT is set: %v", plain, set)
		}
	}
}

// What cannot be started says why, with its exit code, and leaves nothing behind.
func TestUnstartableRanks(t *testing.T) {
	f := newFixture(t, "#!/missing/sh\n")
	if _, err := f.start(t); !errors.Is(err, fs.ErrNotExist) || errext.Code(err, 0) != strategy.CodeUsage {
		t.Errorf("a missing interpreter: %v, code %d", err, errext.Code(err, 0))
	}
	f = newFixture(t, "#!/bin/sh\n")
	dir := filepath.Join(f.store.dir, "attempt-0")
	if err := os.WriteFile(dir, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := New(f.opts, f.log, f.signals).Start(t.Context(), f.launch(0, dir))
	if errext.Code(err, 0) != strategy.CodeRunDir {
		t.Errorf("an attempt's folder that is a file: %v, code %d", err, errext.Code(err, 0))
	}
}
