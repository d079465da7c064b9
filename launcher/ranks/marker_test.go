package ranks

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

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
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
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
