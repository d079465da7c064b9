package test

import (
	"bytes"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/test/testenv"
)

// fakeNVML builds a library with the functions of NVML, whose GPU 0 raises an Xid 79 as soon as a process
// listens for events. A real GPU cannot be made to fall off the bus; TestRealAlarm raises a real Xid.
func fakeNVML(t *testing.T, flags ...string) (folder string) {
	t.Helper()
	compiler, err := osexec.LookPath("cc")
	if err != nil || !ranks.HasNVML() {
		t.Skipf("needs a C compiler and a build with NVML: %v", err)
	}
	folder = t.TempDir()
	source := filepath.Join("..", "launcher", "ranks", "testdata", "nvml.c")
	args := append(flags, "-shared", "-fPIC", "-o", filepath.Join(folder, "libnvidia-ml.so.1"), source)
	if out, err := osexec.Command(compiler, args...).CombinedOutput(); err != nil {
		t.Fatalf("compile: %v\n%s", err, out)
	}
	return folder
}

// driverEvents returns the driver's events in a run's journal, of all attempts.
func driverEvents(t *testing.T, run string) (facts []strategy.Fact) {
	t.Helper()
	events, err := journal.Read(run)
	if err != nil {
		t.Fatal(err)
	}
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
	cmd := osexec.Command(program, "--run-dir", run, "--nproc-per-node", "1", filepath.Join(dir, "train.py"))
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
	explained, err := osexec.Command(program, "explain", run).CombinedOutput()
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
