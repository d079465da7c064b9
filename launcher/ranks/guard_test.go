package ranks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// startSupervisor starts a gpurun of its own that runs the helpers, and returns
// its process, its guard's pid, and the given number of processes that the
// helpers started.
func (h *harness) startSupervisor(says int, helpers ...string) (supervisor, guard identity, ids []identity) {
	h.t.Helper()
	cmd := helperCommand(os.Environ(), false, "supervisor", helpers...)
	var word bytes.Buffer // the guard's, which ends with it
	cmd.Stdout, cmd.Stderr = h.w, &word
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		h.t.Log(word.String())
	})
	p, err := readProcess(cmd.Process.Pid)
	if err != nil {
		h.t.Fatal(err)
	}
	var pids []int
	for len(pids) < says || guard.PID == 0 {
		line, err := h.r.ReadString('\n')
		if err != nil {
			h.t.Fatal(err)
		}
		kind, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch kind {
		case "pid":
			pids = append(pids, number(value))
		case "guard":
			guard = h.identify(number(value))
		}
	}
	for _, pid := range pids {
		ids = append(ids, h.identify(pid))
	}
	h.known = append(h.known, p.identity, guard)
	h.known = append(h.known, ids...)
	return p.identity, guard, ids
}

func (h *harness) identify(pid int) identity {
	h.t.Helper()
	p, err := readProcess(pid)
	if err != nil {
		h.t.Fatal(err)
	}
	return p.identity
}

func (h *harness) kill(id identity) {
	h.t.Helper()
	fd, err := openProcess(id)
	if err != nil {
		h.t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil {
		h.t.Fatal(err)
	}
}

var faults = []string{"deaf", "parent", "setsid", "daemon", "farewell", "abandons 0"}

// All that the helpers of faults say: 1 + 2 + 2 + 2 + 1 + 1.
const faultPIDs = 9

func TestKilledSupervisorLeavesNothing(t *testing.T) {
	h := newHarness(t)
	supervisor, guard, ids := h.startSupervisor(faultPIDs, faults...)
	h.kill(supervisor)
	t.Logf("all gone after %v", h.awaitGone(append(ids, supervisor, guard)...))
}

// A guard is above all that the ranks started whichever one of them dies, and
// so is not too late if the supervisor dies at the same moment.
func TestSupervisorAndOneGuardKilledTogether(t *testing.T) {
	for _, which := range []string{"inner", "outer"} {
		h := newHarness(t)
		supervisor, inner, ids := h.startSupervisor(faultPIDs, faults...)
		outer := h.above(inner)
		victim, rest := inner, outer
		if which == "outer" {
			victim, rest = outer, inner
		}
		h.kill(victim)
		h.kill(supervisor)
		t.Logf("%s guard: all gone after %v", which, h.awaitGone(append(ids, supervisor, victim, rest)...))
	}
}

// above is the parent of a guard.
func (h *harness) above(guard identity) identity {
	h.t.Helper()
	p, err := readProcess(guard.PID)
	if err != nil {
		h.t.Fatal(err)
	}
	outer := h.identify(p.parent)
	h.known = append(h.known, outer)
	return outer
}

func TestKilledGuardCostsNothing(t *testing.T) {
	for _, which := range []string{"inner", "outer"} {
		h := newHarness(t)
		successor := make(chan int, 1)
		warn := successors(func(pid int) { successor <- pid })
		g := h.start(StartOptions{Marker: t.Name(), Warn: warn}, h.rank(0, "heeds"), h.rank(1, "daemon"), h.rank(2, "exit", "5"))
		ids := h.readProcesses(3)
		first := <-g.Exits()
		inner := g.guardID()
		outer := h.above(inner)
		victim, want := inner, outer
		if which == "outer" {
			victim, want = outer, inner
		}
		h.kill(victim)
		if next := h.identify(<-successor); next != want {
			t.Errorf("%s guard killed: %v is in office, want %v", which, next, want)
		}
		h.checkOutlived(g, append(ids, want), ids, first)
	}
}

func TestKilledGuardsCostNothing(t *testing.T) {
	h := newHarness(t)
	successor := make(chan int, 2)
	warn := successors(func(pid int) { successor <- pid })
	g := h.start(StartOptions{Marker: t.Name(), Warn: warn}, h.rank(0, "heeds"), h.rank(1, "daemon"), h.rank(2, "exit", "5"))
	ids := h.readProcesses(3)
	first := <-g.Exits()
	next := h.killGuardsOf(g, successor)
	h.checkOutlived(g, append(ids, next), ids, first)
}

// killGuardsOf kills both guards of a group, and returns the one that is started then.
func (h *harness) killGuardsOf(g *Group, successor <-chan int) identity {
	h.t.Helper()
	inner := g.guardID()
	outer := h.above(inner)
	h.kill(inner)
	h.kill(outer)
	for {
		if next := <-successor; next != outer.PID && next != inner.PID {
			return h.identify(next)
		}
	}
}

// checkOutlived stops a group of "heeds", "daemon" and "exit 5", some guard of
// which has died, and checks that this made no difference.
func (h *harness) checkOutlived(g *Group, alive, ids []identity, first strategy.Fact) {
	h.t.Helper()
	for _, id := range alive {
		if p, err := readProcess(id.PID); err != nil || p.identity != id || !p.alive() {
			h.t.Errorf("process %d did not outlive the guard", id.PID)
		}
	}
	report := g.Stop(time.Hour)
	h.gone(append(ids, alive...)...)
	rest := exits(g)
	if first.Exit().Code != 5 || rest[0].Code != 7 || rest[1].Signal != int(unix.SIGTERM) || rest[0].Peak == 0 {
		h.t.Errorf("exits %+v, then %+v", first.Exit(), rest)
	}
	if report.Swept != 1 || len(report.Killed)+len(report.Leftover) != 0 {
		h.t.Errorf("report %+v", report)
	}
}

// After both guards' death the ranks' orphans come to this process, and so do those
// of commands that it ran itself.
func TestOrphansOfOtherCommandsAreSpared(t *testing.T) {
	h := newHarness(t)
	successor := make(chan int, 2)
	warn := successors(func(pid int) { successor <- pid })
	g := h.start(StartOptions{Marker: t.Name(), Warn: warn}, h.rank(0, "daemon"))
	ids := h.readProcesses(2)
	h.killGuardsOf(g, successor)
	pid, end, err := newOrphan(false)
	testenv.Check(t, err)
	report := g.Stop(time.Hour)
	h.gone(ids...)
	if p, err := readProcess(pid); err != nil || !p.alive() || report.Swept != 1 {
		t.Errorf("orphan of a command: %+v, %v; report %+v", p, err, report)
	}
	release, err := Reap()
	testenv.Check(t, err)
	defer release()
	if err := end(); err != nil {
		t.Error(err)
	}
}

func TestExitIsReportedOnceDespiteALostGuard(t *testing.T) {
	for i := range 4 {
		h := newHarness(t)
		g := h.start(StartOptions{}, h.rank(0, "exit", "9"), h.rank(1, "exit", "9"), h.rank(2, "exit", "9"))
		guard := g.guardID()
		if i%2 == 0 {
			<-g.Exits() // some ends were told by the guard, the others may not be
		}
		h.kill(guard)
		n := 0
		for f := range g.Exits() {
			if n++; f.Exit().Code != 9 || f.Exit().Stopped {
				t.Errorf("exit %+v", f.Exit())
			}
		}
		if want := 2 + i%2; n != want {
			t.Errorf("%d ends, want %d", n, want)
		}
		g.Stop(0)
	}
}

func TestSuccessorEndsAllToo(t *testing.T) {
	h := newHarness(t)
	supervisor, guard, ids := h.startSupervisor(faultPIDs, faults...)
	h.kill(guard)
	h.kill(h.identify(h.word("guard"))) // the outer one, which has taken its place
	next := h.identify(h.word("guard"))
	for _, id := range ids {
		if p, err := readProcess(id.PID); err != nil || p.identity != id || !p.alive() {
			t.Errorf("process %d did not outlive the guard", id.PID)
		}
	}
	h.kill(supervisor)
	t.Logf("all gone after %v", h.awaitGone(append(ids, supervisor, guard, next)...))
}

func TestGuardIsReplacedAgainAndAgain(t *testing.T) {
	h := newHarness(t)
	supervisor, guard, ids := h.startSupervisor(2, "daemon")
	for range 3 {
		h.kill(guard)
		guard = h.identify(h.word("guard"))
	}
	h.kill(supervisor)
	h.awaitGone(append(ids, supervisor, guard)...)
}

func TestGuardKilledWhileRanksStart(t *testing.T) {
	h := newHarness(t)
	ranks := []Rank{h.rank(0, "killGuards")}
	for i := range 30 {
		ranks = append(ranks, h.rank(i+1, "sleep"))
	}
	before := descriptorCount(t)
	g, err := Start(context.Background(), ranks, StartOptions{Marker: t.Name()})
	if err == nil {
		g.Stop(0)
	} else if !strings.Contains(err.Error(), "guard") {
		t.Errorf("error %v", err)
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
	if after := descriptorCount(t); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

// pkill gpurun looks at comm, pkill -f gpurun at the command line.
func TestGuardBearsAnotherName(t *testing.T) {
	h := newHarness(t)
	g := h.start(StartOptions{}, h.rank(0, "sleep"))
	guard := g.guardID().PID
	p, err := readProcess(guard)
	testenv.Check(t, err)
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", guard))
	testenv.Check(t, err)
	want := fmt.Sprint(guardName, os.Getpid())
	if got := strings.TrimRight(string(cmdline), "\x00"); p.name != want || got != want || p.session != guard {
		t.Errorf("name %q, command line %q, session %d of pid %d", p.name, got, p.session, guard)
	}
}

// A scheduler signals every process of a job step. The guard leaves the answer to
// the supervisor.
func TestGuardSurvivesAllSignalsButKill(t *testing.T) {
	h := newHarness(t)
	g := h.start(StartOptions{}, h.rank(0, "heeds"))
	h.readProcesses(1)
	guard := g.guardID()
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGTSTP, unix.SIGHUP} {
		for _, pid := range []int{guard.PID, h.above(guard).PID} {
			testenv.Check(t, unix.Kill(pid, sig))
		}
	}
	g.Stop(time.Hour)
	if e := exits(g)[0]; e.Code != 7 {
		t.Errorf("exit %+v", e)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lost || g.promoted || g.outer == nil {
		t.Error("a guard died")
	}
}

// Suspended guards report nothing. Their ranks are stopped anyway, and their ends are reported. An end before
// the stop keeps its own code.
func TestSuspendedGuard(t *testing.T) {
	h := newHarness(t)
	g := h.start(StartOptions{}, h.rank(0, "heeds"), h.rank(1, "setsid"), h.rank(2, "sleep"))
	ids := h.readProcesses(4)
	for _, guard := range []identity{h.above(g.guardID()), g.guardID()} {
		testenv.Check(t, unix.Kill(guard.PID, unix.SIGSTOP))
	}
	victim := h.identify(g.PIDs()[2])
	h.kill(victim)
	h.awaitGone(victim)
	report := g.Stop(time.Hour)
	h.gone(ids...)
	all := exits(g)
	if all[0].Code != 7 || all[1].Signal != int(unix.SIGTERM) || report.Swept != 1 {
		t.Errorf("exits %+v, report %+v", all, report)
	}
	for rank, e := range all {
		if want := rank != 2; e.Stopped != want {
			t.Errorf("rank %d: %+v, want stopped %t", rank, e, want)
		}
	}
}

// A rank's end is reported at once, not only at a stop.
func TestSuspendedGuardsAreWoken(t *testing.T) {
	h := newHarness(t)
	g := h.start(StartOptions{}, h.rank(0, "sleep"), h.rank(1, "sleep"))
	h.readProcesses(2)
	for _, guard := range []identity{h.above(g.guardID()), g.guardID()} {
		testenv.Check(t, unix.Kill(guard.PID, unix.SIGSTOP))
	}
	h.kill(h.identify(g.PIDs()[1]))
	if f := <-g.Exits(); f.Rank != 1 || f.Exit().Signal != int(unix.SIGKILL) || f.Exit().Stopped {
		t.Errorf("rank %d: %+v", f.Rank, f.Exit())
	}
}

func TestProgramThatIsNoGuard(t *testing.T) {
	t.Setenv(muteVariable, "ends")
	if _, err := Start(t.Context(), []Rank{{Argv: []string{"/bin/true"}}}, StartOptions{}); !errors.Is(err, ErrNoGuard) {
		t.Errorf("error %v", err)
	}
}

func TestSilentGuard(t *testing.T) {
	t.Setenv(muteVariable, "hangs")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Start(ctx, []Rank{{Argv: []string{"/bin/true"}}}, StartOptions{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

// A main that calls Start before MaybeGuard would start itself without end.
func TestGuardDoesNotStartAGroup(t *testing.T) {
	cmd := helperCommand(append(os.Environ(), guardVariable+"=1", muteVariable+"=starts"), false, "")
	cmd.Args = []string{guardName + "1"}
	var word bytes.Buffer
	cmd.Stderr = &word
	if err := cmd.Run(); err != nil || !strings.Contains(word.String(), "MaybeGuard") {
		t.Errorf("said %q, %v", word.String(), err)
	}
}

func TestGuardWithoutASupervisor(t *testing.T) {
	for _, value := range []string{"", "x", "1"} {
		cmd := helperCommand(append(os.Environ(), guardVariable+"="+value), false, "")
		cmd.Args = []string{guardName + "1"}
		var word bytes.Buffer
		cmd.Stderr = &word
		if err := cmd.Run(); err == nil || !strings.HasPrefix(word.String(), "gpurun: error: guard process: ") {
			t.Errorf("%s=%s: said %q, %v", guardVariable, value, word.String(), err)
		}
	}
}

// If a supervisor is killed after its ranks ended with 0 by themselves, it has not seen that, but the guard
// has, and writes it. Other ends of ranks are not written.
func TestEndsAreWrittenIfAnyProcessIsKilled(t *testing.T) {
	end := func(_ identity, ranks []identity) {
		for _, id := range ranks {
			_ = unix.Kill(id.PID, unix.SIGTERM)
		}
	}
	for name, c := range map[string]struct {
		helpers []string
		then    func(supervisor identity, ranks []identity)
		over    int // ranks
		loses   bool
		ends    int
	}{
		"by themselves":       {[]string{"obeys", "obeys"}, end, 2, false, 2},
		"the guard is killed": {[]string{"obeys", "obeys"}, end, 2, true, 2},
		"one fails":           {[]string{"obeys", "heeds"}, end, 2, false, 0},
		"one still runs":      {[]string{"obeys", "deaf"}, end, 1, false, 0},
		"they are stopped":    {[]string{"obeys", "obeys"}, func(s identity, _ []identity) { _ = unix.Kill(s.PID, unix.SIGUSR1) }, 2, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ends")
			t.Setenv("ENDS", path)
			h := newHarness(t)
			supervisor, guard, ranks := h.startSupervisor(2, c.helpers...)
			outer := h.above(guard)
			if c.loses {
				h.kill(guard)
				h.word("guard")
			}
			c.then(supervisor, ranks)
			for over := 0; over < c.over; time.Sleep(time.Millisecond) {
				over = 0
				for _, id := range ranks {
					if p, err := readProcess(id.PID); err != nil || !p.alive() {
						over++
					}
				}
			}
			h.kill(supervisor)
			f, err := os.Open(path)
			testenv.Check(t, err)
			defer f.Close()
			ends := ReadEnds(f) // waits for the guard
			if len(ends) != c.ends {
				t.Errorf("%d ends are written, want %d", len(ends), c.ends)
			}
			for rank, f := range ends {
				if f.Rank != rank || f.Exit() == nil || f.Exit().Code != 0 || f.Time.IsZero() {
					t.Errorf("rank %d: %+v", rank, f)
				}
			}
			h.awaitGone(append(ranks, supervisor, guard, outer)...)
		})
	}
}
