package test

import (
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/test/testenv"
)

// A rank of real PyTorch that never reaches the collective is named with its stack, and the same plan runs
// again and trains.
func TestAStall(t *testing.T) {
	python := testenv.Torch(t)
	t.Parallel()
	dir := copyOf(t, filepath.Join("testdata", "stall"))
	cmd := osexec.CommandContext(t.Context(), binary(t), "--run-dir", "run", "train.toml")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PYTHON_EXEC="+python, "CUDA_VISIBLE_DEVICES=", "OMP_NUM_THREADS=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, tail(out, 60))
	}
	v := verdictOf(t, filepath.Join(dir, "run"))
	if v.Outcome != strategy.Trained || len(v.Attempts) != 2 || v.Attempts[0].Cause != cause.Hang || *v.Attempts[0].Rank != 1 {
		t.Fatalf("%s after %d attempts: %s\n%s", v.Outcome, len(v.Attempts), v.Reason, tail(out, 60))
	}
	const want = `^rank 1 at train\.py:13 in fetch; rank 0 waiting at train\.py:2\d in <module>, in \w+$`
	if got := v.Attempts[0].Error; !regexp.MustCompile(want).MatchString(got) {
		t.Errorf("%q, want %s", got, want)
	}
	if !strings.Contains(string(out), "attempt 0: the job hung on rank 1 (rank 1 at train.py:13 in fetch; ") {
		t.Errorf("not said:\n%s", tail(out, 60))
	}
}
