package doctor

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/launcher/environ"
	"github.com/gpurun/gpurun/launcher/gpu"
	"github.com/gpurun/gpurun/launcher/python"
	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/test/testenv"
)

// told is a driver that reports what a test wants.
type told struct{ found gpu.Findings }

func (d told) Findings(context.Context) gpu.Findings { return d.found }
func (told) Unfit(k int, fault string) cause.DriverEvent {
	return cause.DriverEvent{Kind: cause.UnfitEvent, Device: "cuda:" + string(rune('0'+k)), UUID: "GPU-" + string(rune('0'+k)), Fault: fault}
}

// pythonWith is a Python 3 with a module torch of the test's own.
func pythonWith(t *testing.T, torch string) *python.Interpreter {
	t.Helper()
	path, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 in PATH")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "torch.py"), []byte(torch), 0o644); err != nil {
		t.Fatal(err)
	}
	return python.At(path, dir, environ.Parse(os.Environ()).With(environ.Vars{"PYTHONPATH": dir, "PYTHONDONTWRITEBYTECODE": "1"}))
}

// runPreflight makes a preflight, and gives what it finds and warns of.
func runPreflight(t *testing.T, f *preflight) (unfit, warned string) {
	t.Helper()
	var found, words []string
	for _, fact := range f.Run(t.Context(), func(text string) { words = append(words, text) }) {
		if fact.Rank != -1 || fact.Source == "" || fact.Time.IsZero() {
			t.Errorf("%+v", fact)
		}
		found = append(found, fact.DriverEvent.Text())
	}
	return strings.Join(found, "; "), strings.Join(words, "; ")
}

// version is a torch that has CUDA, whose device fails as the rest says.
const version = `
__version__ = "2.9.0"
int32 = None
class version:
    cuda, hip = "12.8", None
`

// Each way in which a device fails, or is not to blame: no real one does so on demand, and
// the torch here stands in.
func TestPreflightTriesDevices(t *testing.T) {
	fails := func(words string) string {
		return version + "class cuda:\n    @staticmethod\n    def set_device(k):\n        if k == 1:\n            " + words + "\n        raise RuntimeError('CUDA out of memory')\n"
	}
	for name, c := range map[string]struct{ torch, unfit, warned string }{
		"a device fails":  {fails("raise RuntimeError('CUDA error: uncorrectable ECC error encountered\\nmore')"), "cuda:1 (GPU-1, index 0): 256 MiB cannot be written and read back: RuntimeError: CUDA error: uncorrectable ECC error encountered", "preflight: cuda:0 is not tried: RuntimeError: CUDA out of memory"},
		"a process dies":  {fails("import os; os.abort()"), "cuda:1 (GPU-1, index 0): 256 MiB written and read back: ended by signal 6", ""},
		"for the CPU":     {strings.Replace(version, `"12.8"`, "None", 1), "", "is not tried: torch 2.9.0 is built for the CPU"},
		"an old driver":   {fails("raise RuntimeError('The NVIDIA driver on your system is too old (found version 11040)')"), "", "is not tried: RuntimeError: The NVIDIA driver on your system is too old"},
		"no torch at all": {"raise ImportError('libcudart.so.12')", "", "is not tried: ImportError: libcudart.so.12"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &preflight{driver: told{}, python: pythonWith(t, c.torch), devices: []int{1}}
			if name == "a device fails" { // and the other one is full
				f.devices = []int{0, 1}
			}
			unfit, warned := runPreflight(t, f)
			if unfit != c.unfit && (c.unfit == "" || !strings.HasPrefix(unfit, c.unfit)) || !strings.Contains(warned, c.warned) {
				t.Errorf("unfit %q, warned %q", unfit, warned)
			}
		})
	}
	if unfit, warned := runPreflight(t, &preflight{driver: told{}, devices: []int{0}}); unfit != "" || !strings.Contains(warned, "interpreter is not known") {
		t.Errorf("a program: %q, %q", unfit, warned)
	}
}

// What the driver says comes first, and then nothing is tried.
func TestPreflightAsksDriverFirst(t *testing.T) {
	broken := cause.DriverEvent{Kind: cause.UnfitEvent, Device: "cuda:0", UUID: "GPU-0", Index: 4, Bus: "00000000:4B:00.0", Fault: "broken memory waits to be remapped"}
	unfit, warned := runPreflight(t, &preflight{driver: told{gpu.Findings{Unfit: []cause.DriverEvent{broken}}}, devices: []int{0}})
	if unfit != "cuda:0 (GPU-0, index 4, PCI 00000000:4B:00.0): broken memory waits to be remapped" || warned != "" {
		t.Errorf("%q, %q", unfit, warned)
	}
}

// Ranks that fail together are the GPUs' fault, unless they say whose it is.
func TestPreflightBlamesNCCL(t *testing.T) {
	failed := func(words string) error {
		_, err := python.RunOne[struct{}](t.Context(), pythonWith(t, ""), "import sys; print('ready', file=sys.stderr); sys.exit("+words+")")
		return err
	}
	for name, c := range map[string]struct {
		err           error
		fault, warned string
	}{
		"NCCL fails":         {failed("'NCCL error: unhandled cuda error'"), "NCCL: NCCL error: unhandled cuda error", ""},
		"no shared memory":   {failed("'NCCL WARN /dev/shm/nccl-1'"), "", "NCCL WARN /dev/shm/nccl-1 (" + python.MoreShared + ")"},
		"built without":      {failed(`"Distributed package doesn't have NCCL built in"`), "", "Distributed package doesn't have NCCL built in"},
		"they wait for good": {context.DeadlineExceeded, "NCCL: no end after 30s", ""},
		"a busy machine":     {python.ErrBusy, "", python.ErrBusy.Error()},
		"no port":            {errors.New("find a free port"), "", "find a free port"},
	} {
		if fault, warned := blame(c.err, "NCCL"); fault != c.fault || warned != c.warned {
			t.Errorf("%s: fault %q, warned %q", name, fault, warned)
		}
	}
}

// All that it does ends within a minute, with what is left of a process that must be killed.
func TestPreflightEndsWithinAMinute(t *testing.T) {
	if preflightBound+3*time.Second > time.Minute {
		t.Errorf("%s is too long", preflightBound)
	}
}

// The script on a real PyTorch that finds no GPU.
func TestPreflightScriptWithoutAGPU(t *testing.T) {
	interpreter := testenv.Torch(t)
	if os.Getenv("GPURUN_LAB") == "" {
		t.Skip("GPURUN_LAB is not set (make lab)")
	}
	env := environ.Parse(os.Environ()).With(environ.Vars{"CUDA_VISIBLE_DEVICES": ""})
	by := python.At(interpreter, t.TempDir(), env)
	d, err := python.RunOne[device](t.Context(), by, deviceScript, "0")
	if err != nil || d.Absent == "" && d.Error == "" || d.Wrong != 0 {
		t.Errorf("%+v, %v", d, err)
	}
	onCPU := strings.NewReplacer(`device="cuda"`, `device="cpu"`, "not (torch.version.cuda or torch.version.hip)", "False", "torch.cuda.set_device(int(sys.argv[1]))", "pass", "torch.cuda.synchronize()", "there[7] = int(sys.argv[1])").Replace(deviceScript)
	if d, err = python.RunOne[device](t.Context(), by, onCPU, "99"); err != nil || d.Error != "" || d.Wrong != 2 {
		t.Errorf("one word of each pattern is overwritten: %+v, %v", d, err)
	}
}

// TestPreflightOnAGPU tries the machine's own GPUs, which are well.
func TestPreflightOnAGPU(t *testing.T) {
	interpreter := testenv.Torch(t)
	n, err := gpu.Open()
	if err != nil {
		t.Skipf("needs a GPU: %v", err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	c := gpu.Connect()
	defer c.Close()
	env := environ.Parse(os.Environ())
	before := c.Baseline(env.Words(), gpu.View{}, 1)
	f := &preflight{driver: before, python: python.At(interpreter, t.TempDir(), env)}
	for k, d := range before.Devices(t.Context()) {
		f.devices = append(f.devices, k)
		t.Logf("cuda:%d: %+v", k, d)
	}
	t.Logf("findings: %+v", before.Findings(t.Context()))
	begin := time.Now()
	unfit, warned := runPreflight(t, f)
	if t.Logf("took %s", time.Since(begin)); unfit != "" || warned != "" || len(f.devices) == 0 {
		t.Errorf("unfit %q, warned %q, devices %v", unfit, warned, f.devices)
	}
	if event := before.Unfit(0, "x"); !strings.HasPrefix(event.UUID, "GPU-") {
		t.Errorf("%+v", event)
	}
}
