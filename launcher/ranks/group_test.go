package ranks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/strategy"
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
	if err := os.WriteFile(plain, []byte("neither script nor program"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(plain+".run", []byte("\x00\x01"), 0o700); err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
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
	if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "bin", "train"), []byte("#!/bin/sh\nexit 42\n"), 0o700); err != nil {
		t.Fatal(err)
	}
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
