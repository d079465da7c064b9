package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/python"
	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/test/testenv"
)

func TestInterpreter(t *testing.T) {
	p := withTorch(t, nil)
	p.why = "PYTHON_EXEC"
	wants(t, interpreter(t.Context(), p), OK, "(PYTHON_EXEC)", "")

	p = onPaper(t, nil)
	p.env = p.env.With(map[string]string{"PYTHON_EXEC": "/nowhere/python"})
	p.findPython()
	wants(t, interpreter(t.Context(), p), Problem, "/nowhere/python does not exist", "name an interpreter that exists")

	broken := filepath.Join(p.dir, "python")
	if err := os.WriteFile(broken, []byte("#!/bin/sh\necho 'libpython3.so: cannot open' >&2\nexit 127\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	p.env["PYTHON_EXEC"] = broken
	p.findPython()
	wants(t, interpreter(t.Context(), p), Problem, "libpython3.so: cannot open", "name one that runs")
}

func card(major, minor int) ranks.Device {
	return ranks.Device{Name: "NVIDIA X", Total: 80 << 30, Capability: [2]int{major, minor}}
}

// Whether a PyTorch fits the driver and the GPUs: no machine has all of them.
func TestTorchFits(t *testing.T) {
	hopper := cards{view: ranks.DeviceView{Count: 1, Devices: []ranks.Device{card(9, 0)}}, cuda: 12, version: "550.54.15"}
	binaries := []string{"sm_80", "sm_90"}
	for name, c := range map[string]struct {
		facts      torchFacts
		cards      cards
		state      CheckStatus
		found, fix string
	}{
		"fits":                  {torchFacts{Torch: "2.9.0", CUDA: "12.8", Architectures: binaries, Devices: 1}, hopper, OK, "CUDA 12.8, which sees 1 GPU", ""},
		"for the CPU":           {torchFacts{Torch: "2.9.0"}, hopper, Problem, "built for the CPU, and there is 1 GPU", "install a PyTorch with CUDA"},
		"no GPU":                {torchFacts{Torch: "2.9.0"}, cards{}, OK, "for the CPU", ""},
		"no GPU, CUDA":          {torchFacts{Torch: "2.9.0", CUDA: "12.8", CUDAError: "no driver"}, cards{}, OK, "for CUDA 12.8", ""},
		"newer than the driver": {torchFacts{Torch: "2.9.0", CUDA: "13.0", Devices: 1}, hopper, Problem, "driver 550.54.15 knows CUDA 12 at most", "580 or newer"},
		"newer GPU":             {torchFacts{Torch: "2.4.0", CUDA: "12.1", Architectures: binaries, Devices: 1}, cards{view: ranks.DeviceView{Count: 1, Devices: []ranks.Device{card(12, 0)}}}, Problem, "capability 12.0 (it has sm_80 sm_90)", "built for it"},
		"older GPU":             {torchFacts{Torch: "2.9.0", CUDA: "12.8", Architectures: binaries, Devices: 1}, cards{view: ranks.DeviceView{Count: 1, Devices: []ranks.Device{card(7, 0)}}}, Problem, "capability 7.0", "built for it"},
		"cannot be initialised": {torchFacts{Torch: "2.9.0", CUDA: "12.8", Architectures: binaries, CUDAError: "CUDA unknown error"}, hopper, Problem, "cannot use the GPUs: CUDA unknown error", "nvidia-smi"},
		"sees fewer":            {torchFacts{Torch: "2.9.0", CUDA: "12.8", Architectures: binaries, Devices: 2}, hopper, Warning, "sees 2 GPUs, and there is 1 GPU", "CUDA_VISIBLE_DEVICES"},
		"ROCm":                  {torchFacts{Torch: "2.9.0", HIP: "6.4", Devices: 8}, cards{view: ranks.DeviceView{Count: 8, Accelerator: "rocm"}}, OK, "ROCm 6.4, which sees 8 GPUs", ""},
	} {
		t.Run(name, func(t *testing.T) { wants(t, c.facts.fits(c.cards), c.state, c.found, c.fix) })
	}
}

// The rules of CUDA for binaries and for text that the driver translates.
func TestArchitectures(t *testing.T) {
	for _, c := range []struct {
		list       string
		capability [2]int
		want       bool
	}{
		{"sm_80 sm_90", [2]int{8, 0}, true}, {"sm_80", [2]int{8, 6}, true}, {"sm_86", [2]int{8, 0}, false}, {"sm_80", [2]int{9, 0}, false},
		{"sm_80 compute_80", [2]int{9, 0}, true}, {"sm_80 compute_90", [2]int{8, 9}, true}, {"compute_90", [2]int{8, 0}, false},
		{"sm_90a", [2]int{9, 0}, true}, {"sm_100a", [2]int{10, 3}, false}, {"sm_120", [2]int{12, 0}, true}, {"", [2]int{9, 0}, true},
		{"sm_80", [2]int{0, 0}, true}, {"gfx942", [2]int{9, 4}, true},
	} {
		if got := (torchFacts{Architectures: strings.Fields(c.list)}).has(c.capability); got != c.want {
			t.Errorf("%q has %v: %v", c.list, c.capability, got)
		}
	}
}

// What an interpreter's PyTorch says of itself, and that it has none or a broken one.
func TestTorchFacts(t *testing.T) {
	for name, c := range map[string]struct {
		settings   map[string]any
		state      CheckStatus
		found, fix string
	}{
		"there":  {map[string]any{"version": "2.9.0+cu128", "cuda": "12.8", "devices": 2}, OK, "2.9.0+cu128 for CUDA 12.8", ""},
		"broken": {map[string]any{"error": "libcudart.so.12: cannot open shared object file"}, Problem, "cannot be imported: OSError: libcudart.so.12", "install it again"},
	} {
		t.Run(name, func(t *testing.T) {
			wants(t, torchFits(t.Context(), withTorch(t, c.settings)), c.state, c.found, c.fix)
		})
	}
	p := withTorch(t, nil)
	p.torch = func() (torchFacts, error) {
		return torchFacts{Missing: true, Error: "ModuleNotFoundError: No module named 'torch'"}, nil
	}
	wants(t, resultOf(t, p, "torch"), Problem, "there is none: ModuleNotFoundError", "pytorch.org")
	p.torch = func() (torchFacts, error) { return torchFacts{}, errors.New("ended by signal 11") }
	wants(t, resultOf(t, p, "torch"), Problem, "ended by signal 11", "by hand")
}

// NCCL needs GPUs; what it does wrong is a fake's.
func TestNCCL(t *testing.T) {
	for name, c := range map[string]struct {
		settings   map[string]any
		state      CheckStatus
		found, fix string
	}{
		"well":             {nil, OK, "2 ranks: all_reduce at ", ""},
		"no shared memory": {map[string]any{"collective": "Error while creating shared memory segment /dev/shm/nccl-x"}, Problem, "2 ranks: RuntimeError: NCCL error", "--shm-size"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wants(t, nccl(t.Context(), tries(t, c.settings, 2)), c.state, c.found, c.fix)
		})
	}
	wants(t, overNCCL(python.Together{}, 8, nil), Problem, "8 ranks: the sum is wrong", "NCCL_P2P_DISABLE")
	wants(t, overNCCL(python.Together{}, 8, python.ErrBusy), Skipped, "machine is busy", "")
	wants(t, resultOf(t, tries(t, nil, 1), "NCCL"), Skipped, "there is one GPU", "")
	wants(t, resultOf(t, tries(t, nil, 0), "NCCL"), Skipped, "no GPU that torch can use", "")
	p := tries(t, nil, 2)
	p.torch = func() (torchFacts, error) { return torchFacts{Torch: "2.9.0", Devices: 2}, nil }
	wants(t, resultOf(t, p, "NCCL"), Problem, "without NCCL", "for CUDA")
}

// Ranks that wait for each other for good are ended when their time is over, and that is
// a problem.
func TestNCCLHangs(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "hangs")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		awaitFile(t, mark+"0")
		awaitFile(t, mark+"1")
		cancel(context.DeadlineExceeded)
	}()
	wants(t, nccl(ctx, tries(t, map[string]any{"collective": mark}, 2)), Problem, "deadline exceeded", "NCCL_DEBUG=INFO")
}

// This machine, with its own PyTorch, which takes seconds to import.
func TestDoctorOnThisMachine(t *testing.T) {
	interpreter := testenv.Torch(t)
	if os.Getenv("GPURUN_LAB") == "" {
		t.Skip("GPURUN_LAB is not set (make lab)")
	}
	env := commandline.Environ{"PYTHON_EXEC": interpreter, "CUDA_VISIBLE_DEVICES": ""}
	results := inChild(t, examination{}, env)
	wants(t, results["interpreter"], OK, interpreter, "")
	wants(t, results["torch"], OK, "", "")
	if len(results) != len(checks()) {
		t.Errorf("%d results of %d checks", len(results), len(checks()))
	}
	for name, r := range results {
		if r.Group == "" || r.Found == "" || r.State == "" {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// strayed is an interpreter that starts a process in a separate session and then hangs,
// and the file in which that process and itself say their numbers.
func strayed(t *testing.T) (path, pids string) {
	t.Helper()
	dir := t.TempDir()
	path, pids = filepath.Join(dir, "python3"), filepath.Join(dir, "pids")
	text := fmt.Sprintf("#!/bin/sh\nsetsid sleep 1000 >/dev/null 2>&1 </dev/null &\necho $$ $! >%[1]s.new\nmv %[1]s.new %[1]s\nexec sleep 1000\n", pids)
	testenv.Check(t, os.WriteFile(path, []byte(text), 0o755))
	return path, pids
}

// areGone waits until the processes in a file have ended.
func areGone(t *testing.T, pids string) {
	t.Helper()
	for pid := range strings.FieldsSeq(awaitFile(t, pids)) {
		for end := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
			stat, err := os.ReadFile("/proc/" + pid + "/stat")
			if err != nil || bytes.Contains(stat, []byte(") Z ")) {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("process %s is left", pid)
			}
		}
	}
}

// An interpreter that hangs leaves nothing when the question is given up.
func TestHangingInterpreterLeavesNoProcess(t *testing.T) {
	path, pids := strayed(t)
	p := &patient{python: python.At(path, t.TempDir(), commandline.ParseEnviron(os.Environ()))}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		awaitFile(t, pids)
		cancel()
	}()
	if r := p.run(ctx, []check{{name: "interpreter", examine: interpreter}}); r[0].State != Problem && r[0].State != Warning {
		t.Errorf("%+v", r)
	}
	areGone(t, pids)
}

// Nor does it when the doctor is killed.
func TestKilledDoctorLeavesNoProcess(t *testing.T) {
	path, pids := strayed(t)
	text, err := json.Marshal(examination{Subject{Dir: t.TempDir()}, []string{"interpreter"}})
	testenv.Check(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+string(text), "PYTHON_EXEC="+path)
	testenv.Check(t, cmd.Start())
	awaitFile(t, pids)
	if err := errors.Join(cmd.Process.Kill(), cmd.Wait()); err == nil {
		t.Error("it was not killed")
	}
	areGone(t, pids)
}

// What a question has on its standard input arrives, and a failure has its reason.
func TestGuardedOutput(t *testing.T) {
	ctx := python.Guarded(t.Context())
	python3, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	i := python.At(python3, t.TempDir(), commandline.ParseEnviron(os.Environ()))
	in := bytes.Repeat([]byte("x"), 1<<20)
	if said, err := i.Output(ctx, "import sys; print(len(sys.stdin.read()))", in); err != nil || string(said) != "1048576\n" {
		t.Errorf("%q, %v", said, err)
	}
	if _, err := i.Output(ctx, "raise SystemExit('no')", nil); err == nil || !strings.Contains(err.Error(), "code 1: no") {
		t.Error(err)
	}
	if _, err := i.Output(ctx, "import os; os.kill(os.getpid(), 9)", nil); err == nil || !strings.Contains(err.Error(), unix.SignalName(unix.SIGKILL)) {
		t.Error(err)
	}
}
