package ranks

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// Each of these faults leaves processes behind that are not where a launcher
// looks. Where one of them is deaf to SIGTERM, the grace is cut once rank 1 has
// heeded it; else the grace is not used up, or the test would run out of time.
func TestStopLeavesNothing(t *testing.T) {
	for _, test := range []struct {
		name   string // of the helper
		args   []string
		says   int  // pids
		ended  bool // by itself
		deaf   bool
		killed []int
		swept  int
	}{
		{name: "sleep", says: 1},
		{name: "deaf", says: 1, deaf: true, killed: []int{0}},
		{name: "parent", says: 2},
		{name: "abandons", args: []string{"0"}, says: 1, ended: true, deaf: true, swept: 1},
		{name: "abandons", args: []string{"1"}, says: 1, ended: true, deaf: true, swept: 1},
		{name: "setsid", says: 2, swept: 1},
		{name: "daemon", says: 2, swept: 1},
		{name: "farewell", says: 1, ended: true, swept: 1},
		{name: "floods", says: 1},
		{name: "headless", says: 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHarness(t)
			r, w, err := os.Pipe() // nobody reads what comes on stderr
			testenv.Check(t, err)
			defer r.Close()
			defer w.Close()
			rank := h.rank(0, test.name, test.args...)
			rank.Stderr = w
			g := h.start(StartOptions{Marker: t.Name()}, h.rank(1, "sleep"), rank)
			ids := h.readProcesses(test.says + 1)
			if test.ended {
				if f := <-g.Exits(); f.Rank != 0 || f.Exit().Stopped || f.Exit().Signal != 0 {
					t.Errorf("rank %d: exit %+v", f.Rank, f.Exit())
				}
			}
			if test.deaf {
				go func() {
					<-g.Exits() // rank 1's
					g.Kill()
				}()
			}
			report := g.Stop(time.Hour)
			h.gone(ids...)
			if diff := cmp.Diff(StopReport{Killed: test.killed, Swept: test.swept}, report); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStopEndsAChainOfProcesses(t *testing.T) {
	script := filepath.Join(t.TempDir(), "hop")
	const hop = `[ "$2" = 5 ] && echo hop 5
setsid /bin/sh "$1" "$1" $(($2+1)) &
`
	testenv.Check(t, os.WriteFile(script, []byte(hop), 0o600))
	h := newHarness(t)
	g := h.start(StartOptions{}, h.rank(0, "hopper", script))
	h.word("hop")
	if report := g.Stop(0); report.Swept == 0 || len(report.Leftover) != 0 {
		t.Errorf("report %+v", report)
	}
	table, err := snapshot()
	testenv.Check(t, err)
	for pid := range table.procs {
		cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && strings.Contains(string(cmdline), script) {
			t.Errorf("process %d of the chain is still there", pid)
		}
	}
}

func TestStopDistinguishesEarlierEnds(t *testing.T) {
	h := newHarness(t)
	g := h.start(StartOptions{}, h.rank(0, "exit", "3"), h.rank(1, "heeds"), h.rank(2, "deaf"))
	h.readProcesses(2)
	first := <-g.Exits()
	reports := make(chan StopReport)
	go func() { reports <- g.Stop(time.Hour, unix.SIGINT, unix.SIGTERM) }()
	second := <-g.Exits()
	g.Kill()
	report := <-reports
	rest := exits(g)
	rest[second.Rank] = *second.Exit()
	if first.Rank != 0 || first.Exit().Stopped || first.Exit().Code != 3 {
		t.Errorf("before the stop: %+v", first.Exit())
	}
	if e := rest[1]; !e.Stopped || e.Signal == 9 {
		t.Errorf("rank 1 was told to stop: %+v", e)
	}
	if e := rest[2]; !e.Stopped || e.Signal != 9 || e.Code != 137 {
		t.Errorf("rank 2 had to be killed: %+v", e)
	}
	if diff := cmp.Diff([]int{2}, report.Killed); diff != "" {
		t.Errorf("killed (-want +got):\n%s", diff)
	}
}

func TestStopGivesTheGraceThatRanksNeed(t *testing.T) {
	h := newHarness(t)
	g := h.start(StartOptions{}, h.rank(0, "heeds"), h.rank(1, "heeds"))
	h.readProcesses(2)
	report := g.Stop(time.Hour)
	if diff := cmp.Diff(StopReport{}, report); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	for rank, e := range exits(g) {
		if e.Code != 7 || !e.Stopped {
			t.Errorf("rank %d: %+v", rank, e)
		}
	}
}

func TestStopWakesSuspendedRanks(t *testing.T) {
	h := newHarness(t)
	g := h.start(StartOptions{}, h.rank(0, "heeds"))
	h.readProcesses(1)
	g.Signal(unix.SIGTSTP)
	g.Stop(time.Hour)
	if e := exits(g)[0]; e.Code != 7 {
		t.Errorf("exit %+v", e)
	}
}

func TestKillCutsTheGraceShort(t *testing.T) {
	h := newHarness(t)
	g := h.start(StartOptions{}, h.rank(0, "deaf"))
	ids := h.readProcesses(1)
	reports := make(chan StopReport)
	for range 2 {
		go func() { reports <- g.Stop(time.Hour) }()
	}
	g.Kill()
	g.Kill()
	for range 2 {
		if diff := cmp.Diff(StopReport{Killed: []int{0}}, <-reports); diff != "" {
			t.Errorf("report (-want +got):\n%s", diff)
		}
	}
	h.gone(ids...)
}

func TestNoticesReachOnlyThoseThatListen(t *testing.T) {
	h := newHarness(t)
	shell := Rank{Rank: 1, Argv: []string{"/bin/sh", "-c", "read -r line"}, Stdin: os.Stdin}
	r, w, err := os.Pipe()
	testenv.Check(t, err)
	defer w.Close()
	defer r.Close()
	shell.Stdin = r
	g := h.start(StartOptions{}, h.rank(0, "notices"), shell)
	ids := h.readProcesses(1)
	g.Signal(unix.SIGUSR1)
	if pid := h.word("pid"); pid != ids[0].PID {
		t.Errorf("%d has heard it", pid)
	}
	if p, err := readProcess(g.PIDs()[1]); err != nil || !p.alive() {
		t.Errorf("SIGUSR1 ended a rank that has no handler: %+v, %v", p, err)
	}
	g.Signal(unix.SIGTERM)
	for rank, e := range exits(g) {
		if !e.Stopped || e.Signal != int(unix.SIGTERM) {
			t.Errorf("rank %d: %+v", rank, e)
		}
	}
}

func TestSuspendAndResume(t *testing.T) {
	h := newHarness(t)
	g := h.start(StartOptions{}, h.rank(0, "notices"))
	id := h.readProcesses(1)[0]
	g.Signal(unix.SIGTSTP)
	await(t, "the rank to stop", func() bool { p, err := readProcess(id.PID); return err == nil && p.state == 'T' })
	g.Signal(unix.SIGUSR1)
	g.Signal(unix.SIGCONT)
	if pid := h.word("pid"); pid != id.PID {
		t.Errorf("%d has heard it", pid)
	}
}

// await waits for an event that the kernel does not report.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for limit := time.Now().Add(2 * time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func TestUnkillableRankIsReported(t *testing.T) {
	freezer := newFreezer(t)
	h := newHarness(t)
	release, err := Reap() // the rank outlives its group
	testenv.Check(t, err)
	defer release()
	g, err := Start(t.Context(), []Rank{h.rank(4, "sleep"), h.rank(5, "sleep")}, StartOptions{KillTimeout: 300 * time.Millisecond})
	testenv.Check(t, err)
	ids := h.readProcesses(2)
	pid := g.PIDs()[4]
	freezer.freeze(t, pid)
	reports := make(chan StopReport)
	go func() { reports <- g.Stop(time.Hour) }()
	all := map[int]int{}
	for f := range g.Exits() {
		all[f.Rank] = f.Exit().Signal
		g.Kill()
	}
	report := <-reports
	if len(report.Leftover) != 1 {
		t.Fatalf("report %+v", report)
	}
	left := report.Leftover[0]
	if left.PID != pid || left.Rank != 4 || left.State != 'D' || left.Channel == "" || left.Name == "" {
		t.Errorf("left over: %+v", left)
	}
	if diff := cmp.Diff([]int{4}, report.Killed); diff != "" {
		t.Errorf("killed (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[int]int{5: int(unix.SIGTERM)}, all); diff != "" {
		t.Errorf("rank and signal of those that ended (-want +got):\n%s", diff)
	}
	freezer.thaw(t)
	h.awaitGone(ids...)
	await(t, "the rank to be reaped", func() bool { _, err := readProcess(pid); return err != nil })
}

// freezer is a control group of version 1 whose processes SIGKILL does not reach:
// the nearest thing to a rank that hangs in a driver.
type freezer struct{ dir string }

func newFreezer(t *testing.T) freezer {
	t.Helper()
	dir := filepath.Join("/sys/fs/cgroup/freezer", "gpurun-test-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("no freezer of control groups version 1 to write to: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "freezer.state")); err != nil {
		os.Remove(dir)
		t.Skipf("no freezer of control groups version 1: %v", err)
	}
	f := freezer{dir}
	t.Cleanup(func() {
		f.thaw(t)
		await(t, "the control group to empty", func() bool { return os.Remove(dir) == nil })
	})
	return f
}

func (f freezer) write(t *testing.T, file, text string) {
	t.Helper()
	testenv.Check(t, os.WriteFile(filepath.Join(f.dir, file), []byte(text), 0))
}

func (f freezer) freeze(t *testing.T, pid int) {
	t.Helper()
	f.write(t, "cgroup.procs", strconv.Itoa(pid))
	f.write(t, "freezer.state", "FROZEN")
	await(t, "the control group to freeze", func() bool {
		state, err := os.ReadFile(filepath.Join(f.dir, "freezer.state"))
		return err == nil && string(state) == "FROZEN\n"
	})
}

func (f freezer) thaw(t *testing.T) { t.Helper(); f.write(t, "freezer.state", "THAWED") }

// A process with a handler gets the signal, even below a wrapper; no other process does.
func TestAskReachesTheListeningProcessOfEachRank(t *testing.T) {
	h := newHarness(t)
	r, w, err := os.Pipe()
	testenv.Check(t, err)
	defer w.Close()
	defer r.Close()
	deaf := Rank{Rank: 1, Argv: []string{"/bin/sh", "-c", "read -r line"}, Stdin: r}
	wrapped := h.rank(2, "notices")
	wrapped.Argv = append([]string{"/bin/sh", "-c", `"$@"; true`, "sh"}, wrapped.Argv...)
	g := h.start(StartOptions{}, h.rank(0, "notices"), deaf, wrapped)
	listening := []int{h.readProcesses(1)[0].PID, h.readProcesses(1)[0].PID}
	asked := g.Ask(unix.SIGUSR1)
	if len(asked) != 2 || len(asked[0]) != 1 || len(asked[2]) != 1 {
		t.Fatalf("asked %v of %v", asked, g.PIDs())
	}
	got, told := []int{asked[0][0], asked[2][0]}, []int{h.word("pid"), h.word("pid")}
	slices.Sort(listening)
	slices.Sort(got)
	slices.Sort(told)
	if !slices.Equal(got, listening) || !slices.Equal(told, listening) {
		t.Errorf("asked %v, heard by %v, want %v", got, told, listening)
	}
	if asked[2][0] == g.PIDs()[2] {
		t.Error("the wrapper was asked")
	}
	if s := ProcessState(g.PIDs()[1]); s != "sleeping" {
		t.Errorf("the rank without a handler is %q", s)
	}
	g.Signal(unix.SIGTSTP)
	await(t, "the rank to stop", func() bool { return ProcessState(g.PIDs()[1]) == "stopped" })
	g.Stop(0)
	if s := ProcessState(g.PIDs()[1]); s != "" {
		t.Errorf("a rank that has ended is %q", s)
	}
}

// Only the peers are stopped: their ends do not count for the job. The other rank continues, and ends by
// itself with its own code.
func TestStopPeers(t *testing.T) {
	h := newHarness(t)
	g := h.start(StartOptions{Marker: t.Name()}, h.rank(0, "heeds"), h.rank(1, "exit", "3"), h.rank(2, "heeds"), h.rank(3, "notices"))
	ids := h.readProcesses(3)
	var ends []strategy.Exit
	next := func() {
		t.Helper()
		select {
		case f := <-g.Exits():
			ends = append(ends, strategy.Exit{PID: f.Rank, Code: f.Exit().Code, Signal: f.Exit().Signal, Stopped: f.Exit().Stopped})
		case <-time.After(2 * time.Minute):
			t.Fatalf("no further end after %+v", ends)
		}
	}
	next() // of rank 1, which had failed before
	g.StopPeers(unix.SIGTERM, []int{0})
	next()
	next()
	if ends[1].PID > ends[2].PID {
		ends[1], ends[2] = ends[2], ends[1]
	}
	if p, err := readProcess(g.PIDs()[0]); err != nil || !p.alive() {
		t.Errorf("rank 0 does not go on: state %c, %v", p.state, err)
	}
	report := g.Stop(time.Hour)
	next()
	h.gone(ids...)
	want := []strategy.Exit{{PID: 1, Code: 3}, {PID: 2, Code: 7, Stopped: true}, {PID: 3, Code: 143, Signal: 15, Stopped: true}, {PID: 0, Code: 7, Stopped: true}}
	if diff := cmp.Diff(want, ends); diff != "" {
		t.Errorf("ends (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(StopReport{}, report); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}
