package hook

import (
	"os/exec"
	"strings"
	"testing"
)

// filled fills all that it may have, as a job does whose ceiling is too small for it, and
// multiplies for the first time then.
const filled = `import torch
kept = []
try:
    while True:
        kept.append(torch.zeros(1 << 20))
except RuntimeError:
    kept.pop()
one = torch.randn(256, 256)
print("multiplied", (one @ one).shape)
`

// The first multiplication ends also where there is no memory left: with OpenBLAS it went
// on for ever.
func TestFirstMultiplicationIsMeasured(t *testing.T) {
	path := needs(t)
	limit, err := exec.LookPath("prlimit")
	if err != nil {
		t.Skip("no prlimit here")
	}
	r := newTrial(t)
	script := r.module(t, "filled", filled)
	r.orders.Script = script
	cmd := r.job(t, "timeout", "-s", "KILL", "60", limit, "--data=1000000000", path, script)
	cmd.Env = append(cmd.Env, "MALLOC_MMAP_THRESHOLD_=131072", "MALLOC_ARENA_MAX=1", "OMP_NUM_THREADS=1")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "multiplied") {
		t.Errorf("%v:\n%s", err, out)
	}
}
