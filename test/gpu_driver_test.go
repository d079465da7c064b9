package test

import (
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// A PyTorch that is newer than the driver would train on the CPU although a scheduler promised GPUs. The
// driver is a fake of an older one, since a machine has only one driver.
func TestADriverThatIsTooOld(t *testing.T) {
	for cuda, code := range map[string]int{"12.8": strategy.CodeUsage, "11.8": strategy.CodeTrained} {
		dir := home(t, map[string]string{"train.py": "import torch\nprint('started with', torch.__version__)\n"})
		if err := os.Mkdir(filepath.Join(dir, "torch"), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{
			"__init__.py": "from .version import __version__\n",
			"version.py":  "__version__ = '2.9.0'\ncuda = '" + cuda + "'\nhip = None\n",
		} {
			if err := os.WriteFile(filepath.Join(dir, "torch", name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		run := filepath.Join(dir, "run")
		cmd := osexec.Command(binary(t), "--run-dir", run, "--nproc-per-node", "1", filepath.Join(dir, "train.py"))
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
