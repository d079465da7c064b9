package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/launcher"
)

// A rank that SIGKILL does not end, since it waits in the kernel, ends the run with 75, and its pid is
// reported. A frozen control group of version 1 simulates a driver that does not return: both leave the
// process in state D.
func TestAnUnkillableRankEndsTheRun(t *testing.T) {
	t.Parallel()
	group := filepath.Join("/sys/fs/cgroup/freezer", "gpurun-command-test-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Skipf("no freezer of control groups version 1 to write to: %v", err)
	}
	t.Cleanup(func() {
		put(t, filepath.Join(group, "freezer.state"), "THAWED")
		await(t, "the control group to empty", func() bool { return os.Remove(group) == nil })
	})
	dir := home(t, map[string]string{"train.sh": `#!/bin/sh
echo $$ >pid$RANK.new; mv pid$RANK.new pid$RANK
[ $RANK = 1 ] && exec sleep 1000
until [ -e frozen ]; do sleep 0.02; done
echo "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB." >&2
exit 1
`})
	cmd := osexec.Command(build(t), "--run-dir", "run", "--no-python", "--nproc-per-node", "2", "./train.sh")
	cmd.Dir = dir
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "rank 1", func() bool { _, err := os.Stat(filepath.Join(dir, "pid1")); return err == nil })
	text, err := os.ReadFile(filepath.Join(dir, "pid1"))
	if err != nil {
		t.Fatal(err)
	}
	pid := strings.TrimSpace(string(text))
	put(t, filepath.Join(group, "cgroup.procs"), pid)
	put(t, filepath.Join(group, "freezer.state"), "FROZEN")
	await(t, "rank 1 to freeze", func() bool {
		state, err := os.ReadFile(filepath.Join(group, "freezer.state"))
		return err == nil && string(state) == "FROZEN\n"
	})
	put(t, filepath.Join(dir, "frozen"), "")
	var exit *osexec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 75 {
		t.Fatalf("%v\n%s", err, out.String())
	}
	var v launcher.Verdict
	text, err = os.ReadFile(filepath.Join(dir, "run", "verdict.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("process %s waits in", pid)
	if v.Outcome != "retry" || !strings.Contains(v.Reason, want) || !strings.Contains(out.String(), want) {
		t.Errorf("outcome %q, reason %q, without %q; printed:\n%s", v.Outcome, v.Reason, want, out.String())
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
