package test

import (
	"bytes"
	"os"
	osexec "os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// A card is one real GPU, whose level of memory in use a test looks at.
type card struct {
	nvml   *ranks.NVML
	python string
	before int64 // bytes in use when the test began
	total  int64
}

func realCard(t *testing.T) card {
	t.Helper()
	python := os.Getenv("GPURUN_TEST_PYTHON")
	nvml, err := ranks.OpenNVML()
	if err != nil || python == "" {
		t.Skipf("needs an NVIDIA GPU and GPURUN_TEST_PYTHON: %v", err)
	}
	t.Cleanup(func() { nvml.Close() })
	c := card{nvml: nvml, python: python}
	c.before, c.total = c.level(t)
	return c
}

func (c card) level(t *testing.T) (used, total int64) {
	t.Helper()
	devices, err := c.nvml.Devices()
	if err != nil || len(devices) == 0 {
		t.Fatalf("%d devices, %v", len(devices), err)
	}
	return devices[0].Used, devices[0].Total
}

func (c card) start(t *testing.T, dir string, argv ...string) (*osexec.Cmd, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	cmd := osexec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &out
	cmd.Env = append(os.Environ(), "PYTHON_EXEC="+c.python)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, &out
}

// holder takes some GiB of the GPU's memory and keeps them; with a child, that
// takes as much in a separate session, with nothing in its environment.
const holder = `
import os, subprocess, sys, time, torch
held = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(int(sys.argv[1]))]
if len(sys.argv) > 2:
    subprocess.Popen([sys.executable, sys.argv[0], sys.argv[1]], start_new_session=True, env={"HOME": "/tmp"})
open("ready%d" % os.getpid(), "w").close()
time.sleep(1000)
`

// When gpurun is killed, what its ranks and their children held on the GPU is free
// within 2 s.
func TestAKilledGpurunFreesTheGPU(t *testing.T) {
	c := realCard(t)
	dir := home(t, map[string]string{"hold.py": holder})
	cmd, out := c.start(t, dir, binary(t), "--run-dir", "run", "--nproc-per-node", "1", filepath.Join(dir, "hold.py"), "4", "child")
	await(t, "the rank and its child", func() bool {
		ready, err := filepath.Glob(filepath.Join(dir, "ready*"))
		return err == nil && len(ready) == 2
	})
	if used, _ := c.level(t); used < c.before+8<<30 {
		t.Fatalf("%s are in use, and were before: %s\n%s", strategy.GiB(used), strategy.GiB(c.before), out)
	}
	killed := time.Now()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	const idle = 512 << 20
	for used, _ := c.level(t); used > c.before+idle; used, _ = c.level(t) {
		if time.Since(killed) > time.Minute {
			t.Fatalf("%s are in use a minute after gpurun was killed, and were before: %s", strategy.GiB(used), strategy.GiB(c.before))
		}
	}
	t.Logf("the memory is free %s after gpurun was killed", time.Since(killed).Round(time.Millisecond))
}

// gpurun waits for memory that another process holds; it does not make the job smaller.
func TestATenantIsWaitedFor(t *testing.T) {
	c := realCard(t)
	share := c.total >> 30 * 6 / 10
	dir := home(t, map[string]string{
		"hold.py": holder,
		"train.py": `
import argparse, torch
p = argparse.ArgumentParser(); p.add_argument("--batch", type=int); p.add_argument("--accum", type=int, default=1)
a = p.parse_args()
held = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(a.batch)]
print("trained with", a.batch, "x", a.accum)
`,
		"train.toml": `[job]
script = "train.py"
args = ["--batch", "` + string(strategy.Number(int(share))) + `"]
[launch]
nproc_per_node = 1
[knobs]
micro_batch_size = { arg = "--batch" }
gradient_accumulation_steps = { arg = "--accum", default = 1 }
`})
	tenant, _ := c.start(t, dir, c.python, "hold.py", string(strategy.Number(int(share))))
	t.Cleanup(func() { tenant.Process.Kill(); _ = tenant.Wait() })
	await(t, "the tenant", func() bool {
		ready, err := filepath.Glob(filepath.Join(dir, "ready*"))
		return err == nil && len(ready) == 1
	})
	run := filepath.Join(dir, "run")
	cmd, out := c.start(t, dir, binary(t), "--run-dir", run, filepath.Join(dir, "train.toml"))
	await(t, "the decision to wait", func() bool { return waits(run) })
	if err := tenant.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	v := readVerdict(t, run)
	if len(v.Attempts) != 2 || v.Attempts[0].Cause != cause.GPUOccupied || v.Attempts[0].Remedy != strategy.RemedyWait {
		t.Fatalf("attempts %+v\n%s", v.Attempts, out)
	}
	if diff := cmp.Diff(v.Attempts[0].Plan, v.Attempts[1].Plan); diff != "" {
		t.Errorf("the plan has changed:\n%s", diff)
	}
}

// waits reports whether a run's journal has the decision to wait for memory.
func waits(run string) bool {
	events, err := journal.Read(run)
	if err != nil {
		return false
	}
	for _, e := range events {
		if d, ok := e.(launcher.Decided); ok && d.Decision.Remedy == strategy.RemedyWait {
			return true
		}
	}
	return false
}
