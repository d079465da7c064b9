package job

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/launcher/errext"
)

// TestOff: where gpurun is off, the command after it is executed unchanged.
func TestOff(t *testing.T) {
	dir, env := typedAt(t)
	bin := filepath.Dir(strings.TrimPrefix(env[0], "PATH=") + "/x")
	if off, err := Off([]string{"python", "train.py"}, env, dir); off != nil || err != nil {
		t.Errorf("without the variable: %v, %v", off, err)
	}
	env = append(env, "GPURUN=off")
	python3 := filepath.Join(bin, "python3")
	for line, want := range map[string]string{
		"python train.py --x 1":                          "python train.py --x 1",
		"--quiet --mode off --run-dir x uv run a.py":     "uv run a.py",
		"env -- A=1 python x":                            "",
		"-- report --json":                               "report --json",
		"./run.sh":                                       "./run.sh",
		"train.py --x":                                   python3 + " -m torch.distributed.run train.py --x",
		"--nproc-per-node 2 --json -m pkg.train --x":     python3 + " -m torch.distributed.run --nproc-per-node 2 -m pkg.train --x",
		"--python python3 --tee=3 --never nvme train.py": python3 + " -m torch.distributed.run --tee=3 train.py",
		"--no-python ./run.sh x":                         python3 + " -m torch.distributed.run --no-python ./run.sh x",
	} {
		off, err := Off(strings.Fields(line), env, dir)
		if want == "" {
			if err == nil || !strings.Contains(err.Error(), "env is in no folder of PATH") {
				t.Errorf("%s: %v, %v", line, off, err)
			}
			continue
		}
		if err != nil || strings.Join(off.Argv, " ") != want || !filepath.IsAbs(off.Path) {
			t.Errorf("%s: %+v, %v; want %s", line, off, err, want)
		}
	}
	put(t, filepath.Join(bin, "torchrun"), "#!/bin/sh\n")
	if off, err := Off(strings.Fields("--json --nproc-per-node=2 train.py"), env, dir); err != nil || strings.Join(off.Argv, " ") != "torchrun --nproc-per-node=2 train.py" {
		t.Errorf("with torchrun: %+v, %v", off, err)
	}
	for line, want := range map[string]string{
		"train.toml": "GPURUN=off: train.toml is a file for gpurun", "--quiet report": "report is a verb", "--nonsense python x": "unknown flag --nonsense",
	} {
		if off, err := Off(strings.Fields(line), env, dir); err == nil || !strings.Contains(err.Error(), want) || errext.Hint(err) == "" {
			t.Errorf("%s: %v, %v, want %s", line, off, err, want)
		}
	}
}
