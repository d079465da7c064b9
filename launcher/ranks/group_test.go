package ranks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// exits reads all ends of a group, by rank.
func exits(g *Group) map[int]strategy.Exit {
	all := make(map[int]strategy.Exit)
	for f := range g.Exits() {
		all[f.Rank] = *f.Exit()
	}
	return all
}

func TestExitCodesAndSignals(t *testing.T) {
	h := newHarness(t)
	var ranks []Rank
	want := make(map[int][2]int) // rank → code, signal
	add := func(code, signal int, name string, args ...string) {
		want[len(ranks)] = [2]int{code, signal}
		ranks = append(ranks, h.rank(len(ranks), name, args...))
	}
	for _, code := range []int{0, 1, 2, 85, 255} {
		add(code, 0, "exit", fmt.Sprint(code))
	}
	for _, sig := range []unix.Signal{
		unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGILL, unix.SIGTRAP, unix.SIGABRT, unix.SIGBUS, unix.SIGFPE, unix.SIGKILL,
		unix.SIGUSR1, unix.SIGSEGV, unix.SIGUSR2, unix.SIGPIPE, unix.SIGALRM, unix.SIGTERM, unix.SIGXCPU, unix.SIGSYS,
	} {
		add(128+int(sig), int(sig), "signal", fmt.Sprint(int(sig)))
	}
	g := h.start(StartOptions{}, ranks...)
	pids := g.PIDs()
	got := make(map[int][2]int)
	for rank, e := range exits(g) {
		got[rank] = [2]int{e.Code, e.Signal}
		if e.Stopped || e.PID != pids[rank] || e.Peak < 1<<20 {
			t.Errorf("rank %d: stopped %t, pid %d (want %d), peak %d", rank, e.Stopped, e.PID, pids[rank], e.Peak)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("code and signal (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(StopReport{}, g.Stop(time.Minute)); diff != "" {
		t.Errorf("nothing was left to stop (-want +got):\n%s", diff)
	}
}

func TestPeakIsTheResidentSet(t *testing.T) {
	h := newHarness(t)
	g := h.start(StartOptions{}, h.rank(3, "eats", "96"))
	if peak := exits(g)[3].Peak; peak < 96<<20 || peak > 1<<30 {
		t.Errorf("peak of a process that touched 96 MiB: %d", peak)
	}
}

func TestFactHasRankAndTime(t *testing.T) {
	h := newHarness(t)
	before := time.Now()
	g := h.start(StartOptions{}, h.rank(12, "exit", "3"))
	f := <-g.Exits()
	if f.Rank != 12 || f.Source != "exit" || f.Exit() == nil || f.Time.Before(before) || f.Time.After(time.Now()) {
		t.Errorf("fact: %+v", f)
	}
}

// Whoever reads a rank's output sees its end, while the group is still there.
func TestOutputEndsWithTheRank(t *testing.T) {
	h := newHarness(t)
	h.start(StartOptions{}, h.rank(0, "eats", "1"), h.rank(1, "eats", "1"))
	h.w.Close()
	if said, err := io.ReadAll(h.r); err != nil || strings.Count(string(said), "pid ") != 4 {
		t.Errorf("read %q, %v", said, err)
	}
}

func TestStartIsAllOrNone(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	testenv.Check(t, os.WriteFile(plain, []byte("neither script nor program"), 0o600))
	testenv.Check(t, os.WriteFile(plain+".run", []byte("\x00\x01"), 0o700))
	for _, test := range []struct {
		name   string
		change func(*Rank)
		kind   error
		says   string
	}{
		{"absent", func(r *Rank) { r.Argv = []string{"/nowhere/python"} }, fs.ErrNotExist, "start rank 1: exec /nowhere/python: no such file"},
		{"not in PATH", func(r *Rank) { r.Argv = []string{"no-such-python"} }, fs.ErrNotExist, "start rank 1: find in the rank's PATH no-such-python"},
		{"not executable", func(r *Rank) { r.Argv = []string{plain} }, fs.ErrPermission, "start rank 1: exec"},
		{"no program", func(r *Rank) { r.Argv = []string{plain + ".run"} }, unix.ENOEXEC, "exec format error"},
		{"no directory", func(r *Rank) { r.Dir = "/nowhere" }, fs.ErrNotExist, "start rank 1: working directory"},
		{"file for a directory", func(r *Rank) { r.Dir = plain }, unix.ENOTDIR, "start rank 1: working directory"},
		{"no command", func(r *Rank) { r.Argv = nil }, nil, "start rank 1: empty command"},
		{"argument too long", func(r *Rank) { r.Argv = append(r.Argv, strings.Repeat("x", 200<<10)) }, unix.E2BIG, "argument list too long"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHarness(t)
			bad := h.rank(1, "sleep")
			test.change(&bad)
			before := descriptorCount(t)
			g, err := Start(t.Context(), []Rank{h.rank(0, "daemon"), bad, h.rank(2, "sleep")}, StartOptions{})
			if g != nil || err == nil || !strings.Contains(err.Error(), test.says) {
				t.Fatalf("error %q does not say %q", err, test.says)
			}
			if test.kind != nil && !errors.Is(err, test.kind) {
				t.Errorf("error %q is no %q", err, test.kind)
			}
			if after := descriptorCount(t); after != before {
				t.Errorf("%d descriptors before, %d after", before, after)
			}
			h.w.Close()
			for { // the end of the pipe: nobody is left to write to it
				line, err := h.r.ReadString('\n')
				if err != nil {
					break
				}
				pid := number(strings.TrimSpace(strings.TrimPrefix(line, "pid ")))
				if p, err := readProcess(pid); err == nil && p.alive() {
					t.Errorf("process %d (%s) is still there", pid, p.name)
				}
			}
		})
	}
}

func TestStartWithoutRanks(t *testing.T) {
	if g, err := Start(t.Context(), nil, StartOptions{}); g != nil || err == nil {
		t.Errorf("group %v, error %v", g, err)
	}
}

func TestStartHonoursItsContext(t *testing.T) {
	h := newHarness(t)
	why := errors.New("the user changed his mind")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := Start(ctx, []Rank{h.rank(0, "sleep")}, StartOptions{}); !errors.Is(err, why) {
		t.Errorf("error %v", err)
	}
}

func TestRankEnvironment(t *testing.T) {
	h := newHarness(t)
	dir := t.TempDir()
	r := h.rank(0, "files")
	// Large, not UTF-8, and with a marker of an outer gpurun.
	r.Env = append(r.Env, "BYTES=\xff\xfe;", MarkerVariable+"=outer", "PADDING="+strings.Repeat("y", 100<<10))
	r.Dir = dir
	g := h.start(StartOptions{Marker: "mine"}, r)
	pid := g.PIDs()[0]
	if e := exits(g)[0]; e.Code != 0 {
		t.Fatalf("exit %+v", e)
	}
	got, err := h.r.ReadString(';')
	testenv.Check(t, err)
	fields := strings.Fields(got)
	// ls opens descriptor 3 itself, for the directory.
	want := []string{"0", "1", "2", "3", "SigBlk:", "0000000000000000", "SigIgn:", fields[7], "\xff\xfe;"}
	if diff := cmp.Diff(want, fields); diff != "" {
		t.Errorf("descriptors, signals, bytes of pid %d (-want +got):\n%s", pid, diff)
	}
	if ignored := ignoredSignals(t); fields[7] != ignored {
		t.Errorf("ignored signals %s, want those of this process, %s", fields[7], ignored)
	}
}

func ignoredSignals(t *testing.T) string {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	testenv.Check(t, err)
	_, rest, _ := strings.Cut(string(status), "SigIgn:")
	return strings.Fields(rest)[0]
}

func TestRankRuns(t *testing.T) {
	h := newHarness(t)
	g := h.start(StartOptions{Marker: "mine"}, h.rank(0, "sleep"), h.rank(1, "sleep"))
	h.readProcesses(2)
	for rank, pid := range g.PIDs() {
		p, err := readProcess(pid)
		if err != nil || p.session != pid || p.group != pid {
			t.Errorf("rank %d: %+v, %v", rank, p, err)
		}
		environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		for fd := range 3 {
			info, err := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%d", pid, fd))
			var position, flags int
			if _, err := fmt.Sscanf(string(info), "pos:\t%d\nflags:\t%o", &position, &flags); err != nil || flags&unix.O_NONBLOCK != 0 {
				t.Errorf("rank %d: descriptor %d does not block: %q, %v", rank, fd, info, err)
			}
			if err != nil {
				t.Error(err)
			}
		}
		if err != nil || variable(environ, MarkerVariable) != "mine" {
			t.Errorf("rank %d: marker %q, %v", rank, variable(environ, MarkerVariable), err)
		}
	}
}

func TestProgramIsFoundInTheRanksPath(t *testing.T) {
	dir := t.TempDir()
	testenv.Check(t, os.MkdirAll(filepath.Join(dir, "bin"), 0o700))
	testenv.Check(t, os.WriteFile(filepath.Join(dir, "bin", "train"), []byte("#!/bin/sh\nexit 42\n"), 0o700))
	for _, path := range []string{filepath.Join(dir, "bin"), "bin", "/nowhere:bin"} {
		t.Run(path, func(t *testing.T) {
			g := newHarness(t).start(StartOptions{}, Rank{Argv: []string{"train"}, Env: []string{"PATH=" + path}, Dir: dir})
			if e := exits(g)[0]; e.Code != 42 {
				t.Errorf("exit %+v", e)
			}
		})
	}
}

func BenchmarkEightRanks(b *testing.B) {
	ranks := make([]Rank, 8)
	for i := range ranks {
		ranks[i] = Rank{Rank: i, LocalRank: i, Argv: []string{"/bin/sleep", "1000"}}
	}
	for b.Loop() {
		g, err := Start(b.Context(), ranks, StartOptions{Marker: "bench"})
		if err != nil {
			b.Fatal(err)
		}
		g.Stop(time.Hour)
	}
}

func TestLimitIsPutOnEachRank(t *testing.T) {
	h := newHarness(t)
	g := h.start(StartOptions{DataLimit: 64 << 30}, h.rank(0, "sleep"), h.rank(1, "sleep"))
	for rank, pid := range g.PIDs() {
		var got unix.Rlimit
		testenv.Check(t, unix.Prlimit(pid, unix.RLIMIT_DATA, nil, &got))
		if want := (unix.Rlimit{Cur: 64 << 30, Max: 64 << 30}); got != want {
			t.Errorf("rank %d: limit %v, want %v", rank, got, want)
		}
	}
}

// A shell starts its first command before the limit is on itself: the command has it, too.
func TestLimitIsPutOnTheFirstCommandOfAShell(t *testing.T) {
	out := filepath.Join(t.TempDir(), "limits")
	script := `(i=0; until [ "$(ulimit -d)" != unlimited ] || [ $i = 30 ]; do sleep 0.1; i=$((i+1)); done; ulimit -d >>"$0") & wait`
	const starts = 20
	for n := range starts {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			exits(newHarness(t).start(StartOptions{DataLimit: 64 << 30}, Rank{Argv: []string{"/bin/sh", "-c", script, out}, Env: os.Environ()}))
		})
	}
	text, err := os.ReadFile(out)
	if want := strings.Repeat(fmt.Sprintln(64<<20), starts); err != nil || string(text) != want {
		t.Errorf("limits in KiB: %q, %v, want %q", text, err, want)
	}
}

// withoutLimits asks, as an ordinary user, for more than the hard limit.
func withoutLimits([]string) {
	hard := &unix.Rlimit{Cur: 1 << 45, Max: 1 << 45}
	if err := unix.Setrlimit(unix.RLIMIT_DATA, hard); err != nil {
		panic(err)
	}
	rank := Rank{Rank: 6, Argv: []string{"/bin/sleep", "1000"}, Dir: "/"} // this user may not be allowed into the tests' folder
	_, err := Start(context.Background(), []Rank{rank}, StartOptions{DataLimit: 1 << 46})
	fmt.Print(err)
	if !errors.Is(err, unix.EPERM) {
		syscall.Exit(1)
	}
	t, err := snapshot()
	if err != nil {
		panic(err)
	}
	if left := t.children[os.Getpid()]; len(left) != 0 {
		fmt.Print(" left: ", left)
		syscall.Exit(1)
	}
}

func TestLimitThatIsRefused(t *testing.T) {
	cmd := helperCommand(os.Environ(), false, "unlimited")
	if os.Geteuid() == 0 {
		cmd.Path = "/proc/self/exe" // another user may not be allowed to walk to the binary
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
	}
	out, err := cmd.Output()
	if want := "start rank 6: prlimit RLIMIT_DATA: operation not permitted"; err != nil || !strings.HasPrefix(string(out), want) {
		t.Errorf("said %q, want %q: %v", out, want, err)
	}
}

// Of a rank and the processes that it started, the largest counts: a wrapper uses little memory. With a
// limit, the memory that the limit counts is used.
func TestHeldIsThatOfTheLargestProcess(t *testing.T) {
	h := newHarness(t)
	g := h.start(StartOptions{Marker: t.Name()}, h.rank(0, "sleep"), h.rank(1, "hoards"))
	ids := h.readProcesses(3)
	small, large := g.Held(0), g.Held(1)
	if small.Now <= 0 || small.Now >= large.Now || large.Now < 64<<20 || large.Peak < large.Now {
		t.Errorf("held %+v and %+v", small, large)
	}
	g.Stop(time.Second)
	h.gone(ids...)
	if left, none := g.Held(1), g.Held(7); left != (RankMemory{}) || none != left {
		t.Errorf("of a rank that is gone: %+v, of none: %+v", left, none)
	}
	limited := h.start(StartOptions{Marker: t.Name(), DataLimit: 64 << 30}, h.rank(0, "sleep"))
	h.readProcesses(1)
	if all := limited.Held(0); all.Now <= small.Now || all.Peak < all.Now {
		t.Errorf("under a limit: %+v", all)
	}
}

// What a rank left behind is waited for wherever it has gone, and not signalled.
func TestLingerWaitsForWhatRanksLeft(t *testing.T) {
	h := newHarness(t)
	g := h.start(StartOptions{Marker: t.Name()}, h.rank(0, "farewell"))
	daemon := h.readProcesses(1)[0]
	<-g.Exits()
	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan bool)
	go func() { waited <- g.Linger(ctx) }()
	cancel()
	if <-waited {
		t.Error("nothing is left, says Linger beside a daemon")
	}
	if p, err := readProcess(daemon.PID); err != nil || p.identity != daemon || !p.alive() {
		t.Errorf("the daemon is gone: %v", err)
	}
	go func() { waited <- g.Linger(t.Context()) }()
	h.kill(daemon)
	if !<-waited {
		t.Error("something is left, says Linger when the daemon is gone")
	}
	if report := g.Stop(0); report.Swept != 0 || len(report.Leftover) != 0 {
		t.Errorf("report %+v", report)
	}
}

// What a command started is ended with it: its children, those in sessions of their own, and
// those that have lost their parents, whether it ends by itself or is ended.
func TestBesideEndsAllThatACommandStarted(t *testing.T) {
	const starts = `echo $$ >first
sleep 1000 & echo $! >child
setsid sh -c 'echo $$ >session.new; mv session.new session; sleep 1000' &
setsid sh -c 'setsid sh -c "echo \$\$ >orphan.new; mv orphan.new orphan; sleep 1000" & sleep 0.01' &
until [ -e session ] && [ -e orphan ]; do sleep 0.01; done
`
	for name, test := range map[string]struct {
		rest string
		want error
	}{"it is ended": {"echo yes >ready; sleep 1000", errors.New("time is up")}, "it ends": {"echo yes >ready", nil}} {
		dir := t.TempDir()
		cmd := Rank{Argv: []string{"sh", "-c", starts + test.rest}, Env: os.Environ(), Dir: dir}
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error)
		go func() {
			_, err := RunBeside(ctx, []Rank{cmd})
			ended <- err
		}()
		for test.want != nil {
			if _, err := os.Stat(filepath.Join(dir, "ready")); err == nil {
				cancel(test.want)
				break
			}
			time.Sleep(time.Millisecond)
		}
		if err := <-ended; !errors.Is(err, test.want) {
			t.Errorf("%s: %v", name, err)
		}
		cancel(nil)
		for _, file := range []string{"first", "child", "session", "orphan"} {
			text, err := os.ReadFile(filepath.Join(dir, file))
			testenv.Check(t, err)
			pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
			testenv.Check(t, err)
			if p, err := readProcess(pid); err == nil && p.alive() {
				t.Errorf("%s: %s, process %d, is left (%s)", name, file, pid, p.name)
			}
		}
	}
}

// What a process says is bounded, and one that is not there is an error.
func TestBesideBoundsOutput(t *testing.T) {
	flood := Rank{Argv: []string{"head", "-c", "20000000", "/dev/zero"}, Env: os.Environ()}
	all, err := RunBeside(t.Context(), []Rank{flood})
	if err != nil || len(all[0].Out) != mostOutput || all[0].Code != 0 {
		t.Errorf("%d bytes with code %d, %v", len(all[0].Out), all[0].Code, err)
	}
	if _, err := RunBeside(t.Context(), []Rank{{Argv: []string{"no-such-program"}}}); err == nil {
		t.Error("a program that is not there started")
	}
}
