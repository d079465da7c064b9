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

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/python"
	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/test/testenv"
)

// fixedDriver is a driver that reports what a test wants.
type fixedDriver struct{ found ranks.DeviceFindings }

func (d fixedDriver) Findings(context.Context) ranks.DeviceFindings { return d.found }

// pythonWith is a Python 3 with a module torch of the test's own.
func pythonWith(t *testing.T, torch string) *python.Interpreter {
	t.Helper()
	path, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 in PATH")
	}
	dir := t.TempDir()
	testenv.Check(t, os.WriteFile(filepath.Join(dir, "torch.py"), []byte(torch), 0o644))
	return python.At(path, dir, commandline.ParseEnviron(os.Environ()).With(commandline.Environ{"PYTHONPATH": dir, "PYTHONDONTWRITEBYTECODE": "1"}))
}

// runPreflight makes a preflight, and gives what it finds and warns of.
func runPreflight(t *testing.T, f *preflight) (unfit, warned string) {
	t.Helper()
	var found, words []string
	for _, fact := range f.Run(t.Context(), func(text string) { words = append(words, text) }) {
		if fact.Rank != -1 || fact.Source == "" || fact.Time.IsZero() {
			t.Errorf("%+v", fact)
		}
		found = append(found, fact.DriverEvent().Text())
	}
	return strings.Join(found, "; "), strings.Join(words, "; ")
}

// Without the job's interpreter, or with one device, nothing is tried.
func TestPreflightWithoutATrial(t *testing.T) {
	if unfit, warned := runPreflight(t, &preflight{driver: fixedDriver{}, devices: []int{0, 1}}); unfit != "" || !strings.Contains(warned, "interpreter is not known") {
		t.Errorf("a program: %q, %q", unfit, warned)
	}
	if unfit, warned := runPreflight(t, &preflight{driver: fixedDriver{}, devices: []int{0}}); unfit != "" || warned != "" {
		t.Errorf("one device: %q, %q", unfit, warned)
	}
}

// The ranks of the trial run on all devices at once; the torch is a fake, since no GPU fails on demand.
func TestPreflightTriesNCCL(t *testing.T) {
	for name, c := range map[string]struct {
		settings      map[string]any
		unfit, warned string
	}{
		"well":             {nil, "", ""},
		"a link fails":     {map[string]any{"collective": "unhandled cuda error"}, "NCCL between 2 GPUs: RuntimeError: NCCL error in: unhandled system error", ""},
		"no shared memory": {map[string]any{"collective": "Error while creating shared memory segment /dev/shm/nccl-x"}, "", python.MoreShared},
		"no torch":         {map[string]any{"error": "libcudart.so.12"}, "", "NCCL between 2 GPUs is not tried: OSError: libcudart.so.12"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &preflight{driver: fixedDriver{}, python: withTorch(t, c.settings).python, devices: []int{0, 1}}
			unfit, warned := runPreflight(t, f)
			if unfit != c.unfit || !strings.Contains(warned, c.warned) || (warned == "") != (c.warned == "") {
				t.Errorf("unfit %q, warned %q", unfit, warned)
			}
		})
	}
}

// What the driver says comes first, and then nothing is tried.
func TestPreflightAsksDriverFirst(t *testing.T) {
	broken := cause.DriverEvent{Kind: cause.UnfitEvent, Device: "cuda:0", UUID: "GPU-0", Index: 4, Bus: "00000000:4B:00.0", Fault: "broken memory waits to be remapped"}
	unfit, warned := runPreflight(t, &preflight{driver: fixedDriver{ranks.DeviceFindings{Unfit: []cause.DriverEvent{broken}}}, devices: []int{0}})
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
	if whole := driverBound + trialBound + 3*time.Second; whole > time.Minute {
		t.Errorf("%s is too long", whole)
	}
}

// TestPreflightOnAGPU tries the machine's own GPUs, which are well.
func TestPreflightOnAGPU(t *testing.T) {
	interpreter := testenv.Torch(t)
	n, err := ranks.OpenNVML()
	if err != nil {
		t.Skipf("needs a GPU: %v", err)
	}
	testenv.Check(t, n.Close())
	c := ranks.ConnectNVML()
	defer c.Close()
	env := commandline.ParseEnviron(os.Environ())
	before := c.Baseline(env.Words(), ranks.DeviceView{}, 1)
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
}
