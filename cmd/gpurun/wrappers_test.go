package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/test/testenv"
)

// TestRealWrappers runs a job behind the wrappers themselves that this machine has, or
// that are in the folder GPURUN_TEST_WRAPPERS, such as the bin of an environment into
// which "pip install uv poetry" has put them. TestScripts/wrappers has fakes.
func TestRealWrappers(t *testing.T) {
	path := os.Getenv("GPURUN_TEST_WRAPPERS") + ":" + os.Getenv("PATH")
	t.Setenv("PATH", path)
	interpreter := testenv.Python(t)
	for _, c := range []struct{ name, line string }{
		{"uv", "uv run --no-project --offline --python " + interpreter + " train.py"},
		{"uv", "uv run --no-project --offline --python " + interpreter + " python train.py"},
		{"uv", "uv run --no-project --offline --python " + interpreter + " -m train"},
		{"uv", "uv run --no-project --offline --python " + interpreter + " torchrun --nproc-per-node 2 train.py"},
		{"poetry", "poetry run python train.py"},
		{"numactl", "numactl --localalloc python3 train.py"},
		{"time", "time python3 train.py"},
	} {
		t.Run(c.line, func(t *testing.T) {
			if _, err := exec.LookPath(c.name); err != nil {
				t.Skipf("this machine has no %s; set GPURUN_TEST_WRAPPERS to a folder that has it", c.name)
			}
			dir := t.TempDir()
			for name, text := range map[string]string{
				"train.py": "import os, sys\nimport torch\nfrom transformers import HfArgumentParser, TrainingArguments\n" +
					"args = dict(zip(sys.argv[1::2], sys.argv[2::2]))\n" +
					"if int(args['--per_device_train_batch_size']) > 4:\n" +
					"    sys.exit('RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 15.90 GiB total capacity; 14.80 GiB already allocated; 2.81 MiB free; 15.00 GiB reserved in total by PyTorch)')\n" +
					"print('trained with', args['--per_device_train_batch_size'], 'as rank', os.environ.get('RANK'))\n",
				"torch.py": "", "transformers.py": "HfArgumentParser = TrainingArguments = None\n",
				"pyproject.toml": "[project]\nname = \"x\"\nversion = \"1\"\nrequires-python = \">=3.8\"\n[tool.poetry]\npackage-mode = false\n",
			} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			words := append([]string{"--run-dir", "run", "--never", "checkpointing,precision"}, strings.Fields(c.line)...)
			words = append(words, "--output_dir", "out", "--per_device_train_batch_size", "8")
			cmd := exec.Command(os.Args[0], "-test.run=TestRealWrappersGpurun", "--")
			cmd.Args = append(cmd.Args, words...)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "GPURUN_TEST_MAIN=1", "POETRY_VIRTUALENVS_CREATE=false", "VIRTUAL_ENV=", "CONDA_PREFIX=", "CUDA_VISIBLE_DEVICES=")
			out, err := cmd.CombinedOutput()
			want := "trained with 4 as rank None"
			if strings.Contains(c.line, "torchrun") {
				want = "trained with 4 as rank 1"
			}
			if err != nil || !strings.Contains(string(out), want) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestRealWrappersGpurun is gpurun itself, where TestRealWrappers starts it.
func TestRealWrappersGpurun(t *testing.T) {
	if os.Getenv("GPURUN_TEST_MAIN") == "" {
		t.Skip("started by TestRealWrappers")
	}
	for i, w := range os.Args {
		if w == "--" {
			os.Unsetenv("GPURUN_TEST_MAIN")
			os.Exit(Main(append([]string{"gpurun"}, os.Args[i+1:]...), os.Stdin, os.Stdout, os.Stderr))
		}
	}
}
