package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/strategy/memory"
	"github.com/gpurun/gpurun/test/testenv"
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
	testenv.Check(t, os.WriteFile(filepath.Join(f.dir, "train.sh"), []byte(script), 0o755))
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	testenv.Check(t, err)
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
	testenv.Check(t, err)
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
	testenv.Check(t, err)
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
	testenv.Check(t, os.WriteFile(filepath.Join(f.dir, "go-on"), nil, 0o644))
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
		testenv.Check(t, err)
		drain(a.Facts())
		file, want := "env1", []string{"RANK=1", "LOCAL_RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "TORCHELASTIC_RUN_ID=run.0", "TORCHELASTIC_RESTART_COUNT=0", "ROLE_NAME=default"}
		switch {
		case plain && !own.launcher:
			file, want = "env-", []string{"TORCHELASTIC_ERROR_FILE=", "LOCAL_RANK=", "TORCHELASTIC_RUN_ID=", "MASTER_ADDR=", "ROLE_NAME=", "TORCHELASTIC_USE_AGENT_STORE="}
		case plain:
			file, want = "env-", []string{"TORCHELASTIC_ERROR_FILE=" + filepath.Join(f.store.dir, "attempt-0", "rank0", "error.json")}
		}
		text, err := os.ReadFile(filepath.Join(f.dir, file))
		testenv.Check(t, err)
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
	testenv.Check(t, os.WriteFile(dir, nil, 0o644))
	_, err := New(f.opts, f.log, f.signals).Start(t.Context(), f.launch(0, dir))
	if errext.Code(err, 0) != strategy.CodeRunDir {
		t.Errorf("an attempt's folder that is a file: %v, code %d", err, errext.Code(err, 0))
	}
}

// An attempt never gets a port that an earlier one had.
func TestEachAttemptHasAPortOfItsOwn(t *testing.T) {
	n := New(Options{}, nil, nil)
	seen := map[int]bool{}
	for range 200 {
		port, err := n.newPort()
		testenv.Check(t, err)
		if seen[port] {
			t.Fatalf("port %d again", port)
		}
		seen[port] = true
	}
}

// Where every port was used before, that is an error and no used port.
func TestNoUsedPortIsHandedOut(t *testing.T) {
	n := New(Options{}, nil, nil)
	for port := range 1 << 16 {
		n.ports[port] = true
	}
	port, err := n.newPort()
	if err == nil || errext.Code(err, 0) != strategy.CodeRetry || !strings.Contains(errext.Hint(err), "ip_local_port_range") {
		t.Errorf("port %d, error %v with code %d, hint %q", port, err, errext.Code(err, 0), errext.Hint(err))
	}
}

// A port that the user fixed and another process has is the user's matter at the
// start; later it may come back.
func TestAFixedPortThatIsBusy(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", ":0")
	testenv.Check(t, err)
	defer l.Close()
	synctest.Test(t, func(t *testing.T) {
		n := New(Options{MasterPort: l.Addr().(*net.TCPAddr).Port}, nil, nil)
		for attempt, want := range []int{strategy.CodeUsage, strategy.CodeRetry} {
			began := time.Now()
			_, err := n.Port(t.Context(), attempt)
			if errext.Code(err, 0) != want || !strings.Contains(errext.Hint(err), "leave master_port out") {
				t.Errorf("attempt %d: %v, code %d", attempt, err, errext.Code(err, 0))
			}
			if took := time.Since(began); took != portBound {
				t.Errorf("attempt %d: given up after %s", attempt, took)
			}
		}
	})
}

// A process without a rank uses no port: it does not matter which process has it.
func TestOneProcessNeedsNoPort(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", ":0")
	testenv.Check(t, err)
	defer l.Close()
	n := New(Options{Plain: true, MasterPort: l.Addr().(*net.TCPAddr).Port}, nil, nil)
	if port, err := n.Port(t.Context(), 0); port != 0 || err != nil {
		t.Errorf("port %d, %v", port, err)
	}
}

// A port that cannot be had at all is the user's matter; a machine that is short of
// descriptors may have them later.
func TestUnavailablePort(t *testing.T) {
	_, err := New(Options{MasterPort: 1 << 16}, nil, nil).Port(t.Context(), 0)
	if errext.Code(err, 0) != strategy.CodeUsage {
		t.Errorf("%v, code %d", err, errext.Code(err, 0))
	}
	var limit unix.Rlimit
	testenv.Check(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	n := New(Options{}, nil, nil)
	none := unix.Rlimit{Cur: 0, Max: limit.Max}
	testenv.Check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &none))
	_, err = n.Port(t.Context(), 0)
	testenv.Check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	if errext.Code(err, 0) != strategy.CodeRetry || !strings.Contains(errext.Hint(err), "ulimit") {
		t.Errorf("%v, code %d, hint %q", err, errext.Code(err, 0), errext.Hint(err))
	}
}

// Memory of other processes is noted with its amount and holders, and is evidence for the next
// attempt: before a relaunch, and once NVML is up during the first attempt.
func TestMemoryOfOthersIsNoted(t *testing.T) {
	held := strategy.Fact{Rank: -1, Source: "nvml", Content: &strategy.Tenant{Device: "cuda:1", Bytes: 12 << 30, PIDs: []int{1 << 30}}}
	var notes []string
	note := func(text string) { notes = append(notes, text) }
	w := NewWorld(WorldOptions{Settle: func(context.Context, time.Duration) []strategy.Fact { return []strategy.Fact{held} }}, nil, note)
	got := [][]strategy.Fact{w.Settle(t.Context(), time.Second)}

	store := &kept{dir: t.TempDir()}
	log := OpenEventLog(store)
	defer log.Close()
	a := &attempt{node: &Node{log: log}, facts: make(chan strategy.Fact, 1)}
	a.alarm(held)
	got = append(got, []strategy.Fact{<-a.facts})
	await(t, "the notice", func() bool { return len(store.notices()) > 0 })
	notes = append(notes, store.notices()...)
	if diff := cmp.Diff([][]strategy.Fact{{held}, {held}}, got); diff != "" {
		t.Errorf("facts (-want +got):\n%s", diff)
	}
	want := "warning: 12.0 GiB of cuda:1 are in use, and not by this run (process 1073741824)"
	if diff := cmp.Diff([]string{want, want}, notes); diff != "" {
		t.Errorf("notices (-want +got):\n%s", diff)
	}
}

// The variable that gpurun sets for PyTorch's allocator does not replace one that a script sets if there is none.
func TestScriptsAllocatorVariable(t *testing.T) {
	const name, ours = "PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"
	for _, test := range []struct{ own, want string }{
		{"pass", ours},
		{`os.environ.setdefault("` + name + `", "max_split_size_mb:128")`, "max_split_size_mb:128"},
	} {
		f := newFixture(t, fmt.Sprintf("#!%s\nimport os\n%s\nimport torch\nopen('used', 'w').write(os.environ[%q])\n", testenv.Python(t), test.own, name))
		f.opts.Hook, f.opts.Ranks, f.opts.Plain = true, 1, true
		delete(f.opts.Env, name)
		testenv.Check(t, os.WriteFile(filepath.Join(f.dir, "torch.py"), nil, 0o600))
		dir, err := f.store.Prepare(0)
		testenv.Check(t, err)
		launch := f.launch(0, dir)
		launch.Command.Env = map[string]string{name: ours}
		a, err := New(f.opts, f.log, f.signals).Start(t.Context(), launch)
		testenv.Check(t, err)
		for fact := range a.Facts() {
			t.Logf("%+v", fact)
		}
		if used, err := os.ReadFile(filepath.Join(f.dir, "used")); string(used) != test.want {
			t.Errorf("%s: used %q, want %q: %v", test.own, used, test.want, err)
		}
	}
}

// What a preflight finds is the attempt: no rank is started.
func TestAnUnfitGPUStartsNoRank(t *testing.T) {
	f := newFixture(t, "#!/bin/sh\ntouch started\n")
	unfit := strategy.Fact{Rank: -1, Source: "gpurun", Content: &strategy.DriverEvent{Kind: cause.UnfitEvent, Device: "cuda:0", UUID: "GPU-0", Fault: "it is broken"}}
	f.opts.Preflight = func(_ context.Context, warn func(string)) []strategy.Fact {
		warn("a word")
		return []strategy.Fact{unfit}
	}
	a, err := f.start(t)
	testenv.Check(t, err)
	var facts []strategy.Fact
	for fact := range a.Facts() {
		facts = append(facts, fact)
	}
	a.Stop(15, 0)
	if len(facts) != 1 || facts[0].DriverEvent() != unfit.DriverEvent() {
		t.Errorf("%+v", facts)
	}
	want := []string{"preflight: the GPUs are checked before the ranks are started, for a minute at most", "warning: a word", "warning: cuda:0 (GPU-0, index 0): it is broken"}
	if got := f.store.notices(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if _, err := os.Stat(filepath.Join(f.dir, "started")); err == nil {
		t.Error("a rank was started")
	}
}

// A preflight is made once, and ranks are started after one that finds nothing.
func TestAPreflightThatFindsNothing(t *testing.T) {
	f := newFixture(t, "#!/bin/sh\n[ -e looked ] && touch started\n")
	looks := 0
	f.opts.Preflight = func(context.Context, func(string)) []strategy.Fact {
		looks++
		if err := os.WriteFile(filepath.Join(f.dir, "looked"), nil, 0o644); err != nil {
			t.Error(err)
		}
		return nil
	}
	n := New(f.opts, f.log, f.signals)
	for i := range 2 {
		dir, err := f.store.Prepare(i)
		testenv.Check(t, err)
		a, err := n.Start(t.Context(), f.launch(i, dir))
		testenv.Check(t, err)
		drain(a.Facts())
	}
	if _, err := os.Stat(filepath.Join(f.dir, "started")); err != nil || looks != 1 {
		t.Errorf("looked %d times, %v", looks, err)
	}
}

// Who stops gpurun during a preflight stops the run.
func TestAPreflightIsCutShort(t *testing.T) {
	f := newFixture(t, "#!/bin/sh\n")
	ctx, cancel := context.WithCancelCause(t.Context())
	f.opts.Preflight = func(context.Context, func(string)) []strategy.Fact {
		cancel(&launcher.Signal{Number: syscall.SIGTERM})
		return nil
	}
	_, err := New(f.opts, f.log, f.signals).Start(ctx, f.launch(0, t.TempDir()))
	var stop *launcher.Signal
	if !errors.As(err, &stop) {
		t.Errorf("%v", err)
	}
}

// What the machine is short of may be there later; a wrong program will not.
func TestUnstartableRanksHaveTheirCode(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
	}{
		{unix.EAGAIN, strategy.CodeRetry},
		{unix.ENOMEM, strategy.CodeRetry},
		{unix.EMFILE, strategy.CodeRetry},
		{unix.ENFILE, strategy.CodeRetry},
		{ranks.ErrNoGuard, strategy.CodeRetry},
		{fs.ErrNotExist, strategy.CodeUsage},
		{&os.PathError{Op: "exec", Path: "x", Err: unix.ENOENT}, strategy.CodeUsage},
		{errext.WithCode(unix.ENOSPC, strategy.CodeRunDir), strategy.CodeRunDir},
	} {
		if got := errext.Code(cannotStart(fmt.Errorf("start ranks: %w", c.err)), 0); got != c.code {
			t.Errorf("%v: code %d, want %d", c.err, got, c.code)
		}
	}
	stop := &launcher.Signal{Number: unix.SIGTERM}
	if err := cannotStart(stop); !errors.Is(err, error(stop)) || errext.Code(err, 0) != 0 {
		t.Errorf("a signal became %v", err)
	}
}

// What a process holds outside PyTorch's allocator is the driver's figure less its own, once
// that is settled; the last one that could be had stays.
func TestMemoryOutsideTheAllocator(t *testing.T) {
	driver := map[int]int64{7: 1000}
	var got memory.Measurement
	add := withOutside(func(pid int) int64 { return driver[pid] }, func(f strategy.Fact) { got = *f.Memory() })
	for i, test := range []struct {
		used int64
		m    memory.Measurement
		want int64
	}{
		{1000, memory.Measurement{PID: 7, Held: 100}, 0}, // in the first forward
		{1000, memory.Measurement{PID: 7, Held: 400, Steps: 1}, 600},
		{0, memory.Measurement{PID: 7, Held: 500, Steps: 3}, 600},
		{1400, memory.Measurement{PID: 7, Held: 700, Failed: "backward"}, 700},
		{0, memory.Measurement{PID: 8, Held: 500, Steps: 3}, 0},
		{100, memory.Measurement{PID: 8, Held: 500, Steps: 3}, 0}, // another process's
	} {
		driver[test.m.PID] = test.used
		add(strategy.Fact{Content: (*strategy.Measurement)(&test.m)})
		if got.Outside != test.want {
			t.Errorf("%d: %d bytes are outside, want %d", i, got.Outside, test.want)
		}
	}
	withOutside(nil, func(f strategy.Fact) { got = *f.Memory() })(strategy.Fact{Content: &strategy.Measurement{PID: 9}})
	if got.PID != 9 {
		t.Error("without a driver nothing comes through")
	}
}
