package test

import (
	"bytes"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/test/testenv"
)

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
		cmd := osexec.Command(binary(t), "--run-dir", filepath.Join(dir, run), filepath.Join(dir, file))
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
