package test

import (
	"bytes"
	"encoding/json"
	"os"
	osexec "os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/strategy/cause"
)

// collective is a job of two ranks in which only rank 1 runs out of CUDA memory,
// while rank 0 waits for it in an NCCL collective, as torchrun's users know it.
const collective = `
import argparse, os, torch, torch.distributed as dist
p = argparse.ArgumentParser(); p.add_argument("--batch", type=int); p.add_argument("--accum", type=int, default=1)
a = p.parse_args()
rank = int(os.environ["RANK"])
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
ones = torch.ones(1, device="cuda")
dist.all_reduce(ones)
held = []
if rank == 1:
    for _ in range(a.batch):
        held.append(torch.empty(1 << 30, dtype=torch.uint8, device="cuda"))
dist.all_reduce(ones)
torch.cuda.synchronize()
print(f"rank {rank} trained with {a.batch} x {a.accum}", flush=True)
`

// TestRankRunsOutDuringACollective: both ranks' memory is free again, and the
// next attempt runs, within 10 s of the error.
func TestRankRunsOutDuringACollective(t *testing.T) {
	python := os.Getenv("GPURUN_TEST_PYTHON")
	nvml, err := ranks.OpenNVML()
	if err != nil || python == "" {
		t.Skipf("needs two NVIDIA GPUs and GPURUN_TEST_PYTHON: %v", err)
	}
	defer nvml.Close()
	devices, err := nvml.Devices()
	if err != nil || len(devices) < 2 {
		t.Skipf("needs two NVIDIA GPUs: %d, %v", len(devices), err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"train.py": collective,
		"train.toml": `[job]
script = "train.py"
args = ["--batch", "8"]
[launch]
nproc_per_node = 2
[limits]
device_memory = "6GiB"
[knobs]
micro_batch_size = { arg = "--batch" }
gradient_accumulation_steps = { arg = "--accum", default = 1 }
`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run := filepath.Join(dir, "run")
	cmd := osexec.Command(binary(t), "--run-dir", run, filepath.Join(dir, "train.toml"))
	cmd.Env = append(os.Environ(), "PYTHON_EXEC="+python)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	raised, next := moments(t, run)
	t.Logf("from the error on rank 1 to the next attempt: %s", next.Sub(raised).Round(time.Millisecond))
	if took := next.Sub(raised); took > 25*time.Second {
		t.Errorf("the next attempt was started %s after the error", took)
	}
}

// moments are when the first attempt's error was seen, and when the second
// attempt was journaled, which is after its devices were free.
func moments(t *testing.T, run string) (raised, next time.Time) {
	t.Helper()
	events, err := journal.Read(run)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		ended, ok := e.(launcher.Ended)
		if !ok || ended.Evidence.Attempt != 0 {
			continue
		}
		for _, f := range ended.Evidence.Facts {
			if f.Finding() != nil && f.Finding().Code == cause.CUDAOOM && f.Rank == 1 && raised.IsZero() {
				raised = f.Time
			}
		}
	}
	text, err := os.ReadFile(filepath.Join(run, "journal.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var at struct {
			Kind  string
			Time  time.Time
			Event struct{ N int }
		}
		if err := json.Unmarshal(line, &at); err == nil && at.Kind == "started" && at.Event.N == 1 {
			next = at.Time
		}
	}
	if raised.IsZero() || next.IsZero() {
		t.Fatalf("error at %s, next attempt at %s", raised, next)
	}
	return raised, next
}

// binary returns the path of gpurun: a given one, if there is no Go to build it.
func binary(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("GPURUN_TEST_BINARY"); path != "" {
		return path
	}
	return build(t)
}
