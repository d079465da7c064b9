package ranks

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gpurun/gpurun/launcher/system"
	"github.com/gpurun/gpurun/test/testenv"
)

// A process may give itself any name, so also one that looks like the rest of the
// line.
func TestParseStatUnderAnyName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.SampledFrom([]string{"", ")", "(", ") Z 1 1 1", "a b", "((sd-pam))", "\n"}), rapid.StringN(0, 15, 15)).Draw(t, "name")
		want := process{
			identity: identity{PID: rapid.IntRange(1, 1<<22).Draw(t, "pid"), Start: rapid.Uint64().Draw(t, "start")},
			parent:   rapid.IntRange(0, 1<<22).Draw(t, "parent"),
			group:    rapid.IntRange(0, 1<<22).Draw(t, "group"),
			session:  rapid.IntRange(0, 1<<22).Draw(t, "session"),
			state:    rapid.SampledFrom([]byte("RSDZTtXI")).Draw(t, "state"),
			threads:  rapid.IntRange(0, 1000).Draw(t, "threads"),
			name:     name,
		}
		line := fmt.Sprintf("%d (%s) %c %d %d %d 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 %d 0 %d 123 456 18446744073709551615\n",
			want.PID, name, want.state, want.parent, want.group, want.session, want.threads, want.Start)
		got, err := parsed(line)
		testenv.Check(t, err)
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(process{})); diff != "" {
			t.Fatalf("%s(-want +got):\n%s", line, diff)
		}
	})
}

func TestParseStatRefuses(t *testing.T) {
	for _, line := range []string{"", "1", "1 (a", "1 a) S", "1 (a) S 1 1", "x (a) S 0 1 1 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 9 1", "1 (a) S 0 1 1 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 -9 1"} {
		if p, err := parsed(line); err == nil {
			t.Errorf("%q: %+v", line, p)
		}
	}
}

// The main thread may end before the others do: the process shows as a zombie,
// and runs on.
func TestAlive(t *testing.T) {
	for _, test := range []struct {
		state   byte
		threads int
		want    bool
	}{
		{'R', 1, true}, {'S', 8, true}, {'D', 1, true}, {'T', 1, true}, {'Z', 1, false}, {'Z', 0, false}, {'Z', 3, true}, {'X', 0, false},
	} {
		if got := (process{state: test.state, threads: test.threads}).alive(); got != test.want {
			t.Errorf("state %c with %d threads: alive %t", test.state, test.threads, got)
		}
	}
}

func TestTreeFollowsParents(t *testing.T) {
	tree := processTable{procs: map[int]process{}, children: map[int][]int{}}
	for pid, parent := range map[int]int{1: 0, 2: 1, 3: 2, 4: 3, 5: 1, 6: 5, 7: 1, 8: 8} {
		tree.procs[pid] = process{identity: identity{PID: pid}, parent: parent, state: 'S'}
		tree.children[parent] = append(tree.children[parent], pid)
	}
	set := make(map[int]bool)
	tree.add(set, 2, 6, 8, 99)
	if diff := cmp.Diff(map[int]bool{2: true, 3: true, 4: true, 6: true, 8: true, 99: true}, set); diff != "" {
		t.Errorf("set (-want +got):\n%s", diff)
	}
	var pids []int
	for _, p := range tree.alive(set, map[int]bool{2: true}) {
		pids = append(pids, p.PID)
	}
	if diff := cmp.Diff([]int{3, 4, 6, 8}, pids); diff != "" {
		t.Errorf("alive (-want +got):\n%s", diff)
	}
}

// After its parent's end a process belongs to a rank still by its session, whose
// number is the rank's pid.
func TestSessionsBelong(t *testing.T) {
	tree := processTable{procs: map[int]process{}, children: map[int][]int{}}
	for _, p := range []process{
		{identity: identity{PID: 20, Start: 5}, parent: 1, session: 10},
		{identity: identity{PID: 21, Start: 5}, parent: 20, session: 21},
		{identity: identity{PID: 22, Start: 4}, parent: 1, session: 10}, // older than the attempt
		{identity: identity{PID: 23, Start: 9}, parent: 1, session: 11},
	} {
		tree.procs[p.PID] = p
		tree.children[p.parent] = append(tree.children[p.parent], p.PID)
	}
	set := make(map[int]bool)
	tree.addBelonging(set, map[int]bool{10: true}, 5, nil)
	if diff := cmp.Diff(map[int]bool{20: true, 21: true}, set); diff != "" {
		t.Errorf("set (-want +got):\n%s", diff)
	}
}

func TestProcessTableHasThisProcess(t *testing.T) {
	tree, err := snapshot()
	testenv.Check(t, err)
	self := tree.procs[os.Getpid()]
	if self.parent != os.Getppid() || !self.alive() || !tree.is(self.identity) || tree.is(identity{PID: self.PID, Start: self.Start + 1}) {
		t.Errorf("this process: %+v", self)
	}
}

func parsed(line string) (process, error) {
	stat, err := system.ParseStat([]byte(line))
	if err != nil {
		return process{}, err
	}
	return processOf(stat)
}

// stranger starts a process that is no rank's descendant, with the environment
// given on top of this process's own.
func (h *harness) stranger(env ...string) identity {
	h.t.Helper()
	cmd := helperCommand(nil, true, "sleep")
	cmd.Env = slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, slurmJobVariable+"=") })
	cmd.Env = append(cmd.Env, env...)
	cmd.Stdout = h.w
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return h.readProcesses(1)[0]
}

func TestMarkerAloneIsNotEnough(t *testing.T) {
	t.Setenv(slurmJobVariable, "77")
	mine, job := MarkerVariable+"=mine", slurmJobVariable+"=77"
	for _, guarded := range []bool{true, false} {
		h := newHarness(t)
		successor := make(chan int, 2)
		warn := successors(func(pid int) { successor <- pid })
		earlier := h.stranger(mine, job)
		waitForTick(t, earlier)
		g := h.start(StartOptions{Marker: "mine", Warn: warn}, h.rank(0, "sleep"))
		h.readProcesses(1)
		if !guarded {
			h.killGuardsOf(g, successor)
		}
		strangers := map[string]identity{
			"started before the attempt": earlier,
			"without the marker":         h.stranger(job),
			"of another run":             h.stranger(MarkerVariable+"=other", job),
			"of a run with a like name":  h.stranger(MarkerVariable+"=mine2", "X"+mine, job),
			"of another Slurm job":       h.stranger(mine, slurmJobVariable+"=78"),
			"of no Slurm job":            h.stranger(mine),
			"that a daemon started":      h.window(mine, job),
		}
		if moved, ok := h.elsewhere(mine, job); ok {
			strangers["of another control group"] = moved
		}
		// Nothing distinguishes it from an orphan that is ours.
		orphan, swept := h.stranger(mine, job), 1
		if guarded {
			strangers["that nothing distinguishes but where it comes from"], swept = orphan, 0
		}
		report := g.Stop(time.Hour)
		for who, id := range strangers {
			if p, err := readProcess(id.PID); err != nil || p.identity != id || !p.alive() {
				t.Errorf("guarded %t: a process %s was killed", guarded, who)
			}
		}
		if !guarded {
			h.gone(orphan)
		}
		if report.Swept != swept {
			t.Errorf("guarded %t: report %+v", guarded, report)
		}
	}
}

// window is what a terminal multiplexer, or a batch system, that ran before starts
// for a rank: with its environment, and as a child of its own.
func (h *harness) window(env ...string) identity {
	h.t.Helper()
	cmd := exec.Command("/bin/sh", "-c", `env "$@" sleep 1000 & echo pid $!; wait`, "multiplexer")
	cmd.Args = append(cmd.Args, env...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	cmd.Stdout = h.w
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return h.readProcesses(1)[0]
}

// waitForTick waits until a process that starts now shows a later start time.
func waitForTick(t *testing.T, earlier identity) {
	t.Helper()
	await(t, "the clock to tick", func() bool {
		cmd := helperCommand(nil, false, "exit", "0")
		testenv.Check(t, cmd.Start())
		p, err := readProcess(cmd.Process.Pid)
		_ = cmd.Wait()
		return err == nil && p.Start > earlier.Start
	})
}

// elsewhere starts a stranger in a control group of its own, where this user may
// make one.
func (h *harness) elsewhere(env ...string) (identity, bool) {
	h.t.Helper()
	for _, root := range []string{"/sys/fs/cgroup/freezer", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
		dir := filepath.Join(root, "gpurun-marker-"+strconv.Itoa(os.Getpid()))
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		// Cleanups run last first: the stranger's own comes before this one.
		h.t.Cleanup(func() { await(h.t, "the control group to empty", func() bool { return os.Remove(dir) == nil }) })
		id := h.stranger(env...)
		if os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(id.PID)), 0) == nil {
			return id, true
		}
		return identity{}, false
	}
	return identity{}, false
}

func TestVariable(t *testing.T) {
	environ := []byte("A=1\x00GPURUN_RUN_ID=a=b\x00XGPURUN_RUN_ID=c\x00GPURUN_RUN_ID=d\x00EMPTY=\x00")
	for name, want := range map[string]string{"A": "1", MarkerVariable: "a=b", "EMPTY": "", "ABSENT": "", "GPURUN_RUN": ""} {
		if got := variable(environ, name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
