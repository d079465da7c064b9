package test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/test/testenv"
)

// Ranks of real PyTorch that use the numbers of Slurm's tasks are one training. If each trains by itself,
// gpurun reports that when it happens, and at the end.
func TestRanksByTaskNumbers(t *testing.T) {
	t.Parallel()
	python := testenv.Torch(t)
	const step = "SLURM_JOB_ID=7 SLURM_JOB_NODELIST=n1 SLURMD_NODENAME=n1 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=n1 SLURM_STEP_NUM_NODES=1 SLURM_NODEID=0 SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_LOCALID=0"
	for _, test := range []struct {
		args  []string
		alone int
	}{{nil, 0}, {[]string{"alone"}, 2}} {
		dir := copyOf(t, filepath.Join("testdata", "tasks"))
		cmd := exec.Command(binary(t), append([]string{"--run-dir", "run", "--python", python, "--nproc-per-node", "2", "train.py"}, test.args...)...)
		cmd.Dir, cmd.Env = dir, append(cmd.Environ(), append(strings.Fields(step), "XDG_STATE_HOME="+dir)...)
		said, err := cmd.CombinedOutput()
		text := string(said)
		if err != nil || (test.alone == 0) != (strings.Contains(text, "rank 0 of 2\n") && strings.Contains(text, "rank 1 of 2\n")) {
			t.Errorf("%q: %v\n%s", test.args, err, text)
		}
		for _, warning := range []string{"warning: none of the 2 ranks has joined a process group", "warning: trained 2 times rather than once"} {
			if strings.Contains(text, warning) != (test.alone > 0) {
				t.Errorf("%q: %q in\n%s", test.args, warning, text)
			}
		}
		v := verdictOf(t, filepath.Join(dir, "run"))
		if last := v.Attempts[len(v.Attempts)-1]; last.Alone != test.alone {
			t.Errorf("%q: %+v", test.args, last)
		}
	}
}
