package test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/doctor"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/test/testenv"
)

// collective is a job of two ranks in which only rank 1 runs out of CUDA memory,
// while rank 0 waits for it in an NCCL collective, as torchrun's users know it.
const collective = `
import argparse, os, torch, torch.distributed as dist
p = argparse.ArgumentParser(); p.add_argument("--batch", type=int); p.add_argument("--accum", type=int, default=1)
a = p.parse_args()
rank = int(os.environ["RANK"])
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
ones = torch.ones(1, device="cuda")
dist.all_reduce(ones)
held = []
if rank == 1:
    for _ in range(a.batch):
        held.append(torch.empty(1 << 30, dtype=torch.uint8, device="cuda"))
dist.all_reduce(ones)
torch.cuda.synchronize()
print(f"rank {rank} trained with {a.batch} x {a.accum}", flush=True)
`

// TestRankRunsOutDuringACollective: both ranks' memory is free again, and the
// next attempt runs, within 10 s of the error.
func TestRankRunsOutDuringACollective(t *testing.T) {
	python := os.Getenv("GPURUN_TEST_PYTHON")
	nvml, err := ranks.OpenNVML()
	if err != nil || python == "" {
		t.Skipf("needs two NVIDIA GPUs and GPURUN_TEST_PYTHON: %v", err)
	}
	defer nvml.Close()
	devices, err := nvml.Devices()
	if err != nil || len(devices) < 2 {
		t.Skipf("needs two NVIDIA GPUs: %d, %v", len(devices), err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"train.py": collective,
		"train.toml": `[job]
script = "train.py"
args = ["--batch", "8"]
[launch]
nproc_per_node = 2
[limits]
device_memory = "6GiB"
[knobs]
micro_batch_size = { arg = "--batch" }
gradient_accumulation_steps = { arg = "--accum", default = 1 }
`} {
		testenv.Check(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	run := filepath.Join(dir, "run")
	cmd := exec.Command(binary(t), "--run-dir", run, filepath.Join(dir, "train.toml"))
	cmd.Env = append(os.Environ(), "PYTHON_EXEC="+python)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	raised, next := moments(t, run)
	t.Logf("from the error on rank 1 to the next attempt: %s", next.Sub(raised).Round(time.Millisecond))
	if took := next.Sub(raised); took > 25*time.Second {
		t.Errorf("the next attempt was started %s after the error", took)
	}
}

// moments are when the first attempt's error was seen, and when the second
// attempt was journaled, which is after its devices were free.
func moments(t *testing.T, run string) (raised, next time.Time) {
	t.Helper()
	events, err := journal.Read(run)
	testenv.Check(t, err)
	for _, e := range events {
		ended, ok := e.(launcher.Ended)
		if !ok || ended.Evidence.Attempt != 0 {
			continue
		}
		for _, f := range ended.Evidence.Facts {
			if f.Finding() != nil && f.Finding().Code == cause.CUDAOOM && f.Rank == 1 && raised.IsZero() {
				raised = f.Time
			}
		}
	}
	text, err := os.ReadFile(filepath.Join(run, "journal.jsonl"))
	testenv.Check(t, err)
	for line := range bytes.Lines(text) {
		var at struct {
			Kind  string
			Time  time.Time
			Event struct{ N int }
		}
		if err := json.Unmarshal(line, &at); err == nil && at.Kind == "started" && at.Event.N == 1 {
			next = at.Time
		}
	}
	if raised.IsZero() || next.IsZero() {
		t.Fatalf("error at %s, next attempt at %s", raised, next)
	}
	return raised, next
}

// binary returns the path of gpurun: a given one, if there is no Go to build it.
func binary(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("GPURUN_TEST_BINARY"); path != "" {
		return path
	}
	return build(t)
}

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

func (c card) start(t *testing.T, dir string, argv ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &out
	cmd.Env = append(os.Environ(), "PYTHON_EXEC="+c.python)
	testenv.Check(t, cmd.Start())
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
	testenv.Check(t, cmd.Process.Kill())
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
	testenv.Check(t, tenant.Process.Kill())
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

// fakeNVML builds a library with the functions of NVML, whose GPU 0 raises an Xid 79 as soon as a process
// listens for events. A real GPU cannot be made to fall off the bus; TestRealAlarm raises a real Xid.
func fakeNVML(t *testing.T, flags ...string) (folder string) {
	t.Helper()
	compiler, err := exec.LookPath("cc")
	if err != nil || !ranks.HasNVML() {
		t.Skipf("needs a C compiler and a build with NVML: %v", err)
	}
	folder = t.TempDir()
	source := filepath.Join("..", "launcher", "ranks", "testdata", "nvml.c")
	args := append(flags, "-shared", "-fPIC", "-o", filepath.Join(folder, "libnvidia-ml.so.1"), source)
	if out, err := exec.Command(compiler, args...).CombinedOutput(); err != nil {
		t.Fatalf("compile: %v\n%s", err, out)
	}
	return folder
}

// driverEvents returns the driver's events in a run's journal, of all attempts.
func driverEvents(t *testing.T, run string) (facts []strategy.Fact) {
	t.Helper()
	events, err := journal.Read(run)
	testenv.Check(t, err)
	for _, e := range events {
		if ended, ok := e.(launcher.Ended); ok {
			for _, f := range ended.Evidence.Facts {
				if f.DriverEvent() != nil {
					facts = append(facts, f)
				}
			}
		}
	}
	return facts
}

// The driver's events while the ranks run are journaled with device and time, and explain an end that no rank
// explains.
func TestAlarmExplainsASilentEnd(t *testing.T) {
	dir := home(t, map[string]string{"train.py": "import os, time\ntime.sleep(0.5)\nos._exit(7)\n"})
	run := filepath.Join(dir, "run")
	program := binary(t)
	cmd := exec.Command(program, "--run-dir", run, "--nproc-per-node", "1", filepath.Join(dir, "train.py"))
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+fakeNVML(t), "CUDA_VISIBLE_DEVICES=0", "PYTHON_EXEC="+testenv.Python(t))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err == nil {
		t.Fatalf("the job did not fail\n%s", &out)
	}
	v := readVerdict(t, run)
	if len(v.Attempts) != 1 || v.Attempts[0].Cause != cause.GPUHardware || v.Attempts[0].ExitCode != 7 ||
		v.Attempts[0].Error != "Xid 79 on GPU-zero: the GPU has fallen off the bus" {
		t.Errorf("attempts %+v\n%s", v.Attempts, &out)
	}
	facts := driverEvents(t, run)
	if len(facts) == 0 || facts[0].DriverEvent().Device != "cuda:0" || facts[0].Time.IsZero() || facts[0].Source != "nvml" {
		t.Errorf("%+v", facts)
	}
	explained, err := exec.Command(program, "explain", run).CombinedOutput()
	if err != nil || !strings.Contains(string(explained), "cuda:0: Xid 79 on GPU-zero") {
		t.Errorf("explain: %v\n%s", err, explained)
	}
}

// A kernel that writes to unmapped memory makes the real driver raise an Xid, which is the job's fault and no
// broken hardware.
func TestRealAlarm(t *testing.T) {
	c := realCard(t)
	dir := home(t, map[string]string{"train.py": `
import ctypes, os
cuda = ctypes.CDLL("libcuda.so.1")
ptx = b""".version 6.0
.target sm_50
.address_size 64
.visible .entry fault() { .reg .b64 %p; .reg .b32 %v; mov.u64 %p, 16; mov.u32 %v, 1; st.global.u32 [%p], %v; ret; }
"""
def call(name, *args):
    code = getattr(cuda, name)(*args)
    assert code == 0, (name, code)
context, module, kernel, device = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
call("cuInit", 0)
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuCtxCreate_v2", ctypes.byref(context), 0, device)
call("cuModuleLoadData", ctypes.byref(module), ptx)
call("cuModuleGetFunction", ctypes.byref(kernel), module, b"fault")
call("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None)
os._exit(7 if cuda.cuCtxSynchronize() == 700 else 8)
`})
	run := filepath.Join(dir, "run")
	cmd, out := c.start(t, dir, binary(t), "--run-dir", run, "--nproc-per-node", "1", filepath.Join(dir, "train.py"))
	_ = cmd.Wait() // it fails
	v := readVerdict(t, run)
	facts := driverEvents(t, run)
	for _, f := range facts {
		t.Logf("%s: %s", f.Time, f.DriverEvent().Text())
	}
	if len(v.Attempts) == 0 || v.Attempts[0].ExitCode != 7 {
		t.Fatalf("attempts %+v\n%s", v.Attempts, out)
	}
	if len(facts) == 0 || v.Attempts[0].Cause != cause.IllegalAccess || facts[0].DriverEvent().Device != "cuda:0" {
		t.Errorf("%d events of the driver, attempts %+v\n%s", len(facts), v.Attempts, out)
	}
}

// A rank runs before the driver has reported the GPU's health: its answer waits for a file that the rank
// writes. A broken GPU ends the start with 75 and is named in all ways, and the run's next start tries it
// first. With preflight = false nothing is checked. The driver is a fake, since no real GPU breaks on demand.
func TestAnUnfitGPUEndsTheStart(t *testing.T) {
	dir := home(t, map[string]string{
		"train.py":   "import sys, time\nopen('started', 'w').close()\ntime.sleep(float(sys.argv[1]))\n",
		"train.toml": "[job]\nscript = 'train.py'\nargs = ['100']\n[launch]\nnproc_per_node = 1\n",
		"off.toml":   "[job]\nscript = 'train.py'\nargs = ['0']\n[launch]\nnproc_per_node = 1\npreflight = false\n",
	})
	started, nvml := filepath.Join(dir, "started"), fakeNVML(t, "-DSICK", "-DALONE", "-DIDLE", "-DCALM")
	start := func(run, file string) (string, int) {
		cmd := exec.Command(binary(t), "--run-dir", filepath.Join(dir, run), filepath.Join(dir, file))
		cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+nvml, "CUDA_VISIBLE_DEVICES=0", "PYTHON_EXEC="+testenv.Python(t), "FAKE_NVML_AWAITS="+started)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		_ = cmd.Run() // its code is looked at
		return out.String(), cmd.ProcessState.ExitCode()
	}
	out, code := start("run", "train.toml")
	v := readVerdict(t, filepath.Join(dir, "run"))
	if code != strategy.CodeRetry || v.Attempts[0].Cause != cause.GPUHardware || !strings.Contains(v.Reason, "cuda:0 (GPU-zero, index 0, PCI 00000000:4B:00.0): broken memory, and no spare rows left") {
		t.Errorf("code %d, %s\n%s", code, v.Reason, out)
	}
	if _, err := os.Stat(started); err != nil {
		t.Errorf("no rank ran: %v", err)
	}
	if out, code = start("run", "train.toml"); code != strategy.CodeRetry || !strings.Contains(out, "preflight: the GPUs are checked before the ranks are started") {
		t.Errorf("after that: code %d\n%s", code, out)
	}
	if out, code = start("other", "off.toml"); code != 0 || strings.Contains(out, "GPU-zero") {
		t.Errorf("without a preflight: code %d\n%s", code, out)
	}
}

// A PyTorch that is newer than the driver would train on the CPU although a scheduler promised GPUs. The
// driver is a fake of an older one, since a machine has only one driver.
func TestADriverThatIsTooOld(t *testing.T) {
	for cuda, code := range map[string]int{"12.8": strategy.CodeUsage, "11.8": strategy.CodeTrained} {
		dir := home(t, map[string]string{"train.py": "import torch\nprint('started with', torch.__version__)\n"})
		testenv.Check(t, os.Mkdir(filepath.Join(dir, "torch"), 0o755))
		for name, text := range map[string]string{
			"__init__.py": "from .version import __version__\n",
			"version.py":  "__version__ = '2.9.0'\ncuda = '" + cuda + "'\nhip = None\n",
		} {
			testenv.Check(t, os.WriteFile(filepath.Join(dir, "torch", name), []byte(text), 0o644))
		}
		run := filepath.Join(dir, "run")
		cmd := exec.Command(binary(t), "--run-dir", run, "--nproc-per-node", "1", filepath.Join(dir, "train.py"))
		cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+fakeNVML(t), "PYTHON_EXEC="+testenv.Python(t), "PYTHONPATH="+dir,
			"SLURM_JOB_ID=7", "SLURMD_NODENAME=n1", "SLURM_JOB_NODELIST=n1", "SLURM_GPUS_ON_NODE=1", "CUDA_VISIBLE_DEVICES=0")
		out, err := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != code {
			t.Fatalf("PyTorch for CUDA %s: code %d, want %d, %v\n%s", cuda, got, code, err, out)
		}
		started := strings.Contains(string(out), "started with")
		said := strings.Contains(string(out), "the driver is too old for the PyTorch of") && strings.Contains(string(out), "built for CUDA 12.8, and the driver knows CUDA 11")
		if refused := code != 0; started == refused || said != refused {
			t.Errorf("PyTorch for CUDA %s: started %t, told %t\n%s", cuda, started, said, out)
		}
	}
}

// visit runs gpurun doctor, and returns its results by name.
func visit(t *testing.T, c card, env []string, flags ...string) map[string]doctor.Result {
	t.Helper()
	cmd := exec.Command(binary(t), append([]string{"doctor", "--json"}, flags...)...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(append(os.Environ(), "PYTHON_EXEC="+c.python), env...)
	begin := time.Now()
	out, err := cmd.Output()
	var r doctor.Report
	if failed := json.Unmarshal(out, &r); failed != nil {
		t.Fatalf("%v, %v\n%s", err, failed, out)
	}
	t.Logf("%v took %s: %s", flags, time.Since(begin).Round(time.Millisecond), r.Summary())
	results := map[string]doctor.Result{}
	for _, one := range r.Checks {
		t.Logf("%-8s %-15s %s", one.State, one.Name, one.Found)
		results[one.Name] = one
	}
	if code := cmd.ProcessState.ExitCode(); code != r.Code() {
		t.Errorf("exit code %d with %d problems", code, r.Problems)
	}
	if took := time.Since(begin); took > time.Minute {
		t.Errorf("took %s", took)
	}
	return results
}

// free waits until the GPU's memory is free again.
func (c card) free(t *testing.T) {
	t.Helper()
	await(t, "the GPU's memory to be free", func() bool {
		used, _ := c.level(t)
		return used < c.before+512<<20
	})
}

// A working GPU, a GPU in use, and a hidden GPU. No memory is held afterwards.
func TestDoctorOnAGPU(t *testing.T) {
	c := realCard(t)
	results := visit(t, c, nil)
	for _, name := range []string{"interpreter", "torch", "devices", "other users", "NCCL"} {
		if r := results[name]; r.State != doctor.OK && (name != "NCCL" || r.State != doctor.Skipped) {
			t.Errorf("%+v", r)
		}
	}
	if r := results["health"]; r.State == doctor.Problem || r.State == doctor.Skipped {
		t.Errorf("%+v", r)
	}
	c.free(t)

	dir := home(t, map[string]string{"hold.py": holder})
	cmd, _ := c.start(t, dir, c.python, filepath.Join(dir, "hold.py"), "4")
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	await(t, "somebody to use the GPU", func() bool {
		ready, err := filepath.Glob(filepath.Join(dir, "ready*"))
		return err == nil && len(ready) > 0
	})
	results = visit(t, c, []string{"CUDA_VISIBLE_DEVICES=0"})
	if r := results["other users"]; r.State != doctor.Warning || !strings.Contains(r.Found, "GPU 0: ") {
		t.Errorf("%+v", r)
	}
	if r := visit(t, c, []string{"CUDA_VISIBLE_DEVICES="})["devices"]; r.State != doctor.Warning || !strings.Contains(r.Found, "hides") {
		t.Errorf("%+v", r)
	}
}
