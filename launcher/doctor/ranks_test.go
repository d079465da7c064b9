package doctor

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/python"
	"github.com/gpurun/gpurun/test/testenv"
)

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
