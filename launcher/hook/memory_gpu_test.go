package hook

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy/memory"
)

// pytorch is what the script of TestPhasesAreMeasuredOnAGPU heard from PyTorch, in bytes: held, and
// the most so far, at the end of each instant.
type pytorch struct {
	Marks []int64 `json:"marks"`
	Steps []struct {
		Forward   [2]int64 `json:"forward"`
		Backward  [2]int64 `json:"backward"`
		Optimizer [2]int64 `json:"optimizer"`
	} `json:"steps"`
	Allocated int64 `json:"allocated"`
	Requested int64 `json:"requested"`
	Allowed   int64 `json:"allowed"`
	Total     int64 `json:"total"`
	Peak      int64 `json:"peak"`
}

// TestPhasesAreMeasuredOnAGPU compares what is measured with what PyTorch says in the job itself, to
// the byte: in a job that trains, and in three that run out of memory.
func TestPhasesAreMeasuredOnAGPU(t *testing.T) {
	path := needs(t)
	ask := exec.Command(path, "-c", "import sys, torch; sys.exit(not (torch.cuda.is_available() and hasattr(torch._C, '_cuda_attach_out_of_memory_observer')))")
	ask.Dir = "/"
	if err := ask.Run(); err != nil {
		t.Skip("needs a GPU, and a PyTorch that tells of memory that ran out")
	}
	for _, way := range []string{"good", "forward", "backward", "optimizer"} {
		t.Run(way, func(t *testing.T) {
			m, want := onGPU(t, path, way)
			if way == "good" {
				compareSteps(t, m, want)
			} else {
				compareFailure(t, m, want, way)
			}
			if len(m.Marks) != 1 || !slices.Equal(m.Marks[0].Bytes, want.Marks) {
				t.Errorf("marks %+v, PyTorch says %v", m.Marks, want.Marks)
			}
			if m.Total != want.Total || m.Reserved < m.Peak || m.Start == 0 {
				t.Errorf("measured %+v", m)
			}
		})
	}
}

// onGPU runs the script, and gives what was measured and what it heard.
func onGPU(t *testing.T, path, way string) (m memory.Measurement, want pytorch) {
	t.Helper()
	r := newTrial(t)
	r.orders.Script = testdata(t, "measured_gpu.py")
	heard := filepath.Join(r.home, "heard.json")
	cmd := r.job(t, path, r.orders.Script, way, heard)
	cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+os.Getenv("LD_LIBRARY_PATH"))
	out, err := cmd.CombinedOutput()
	if fails := way != "good"; (err != nil) != fails || fails && !strings.Contains(string(out), "OutOfMemoryError") {
		t.Fatalf("%v:\n%s", err, out)
	}
	r.told(t) // that nothing went wrong in the probe
	text, err := os.ReadFile(filepath.Join(r.dir, "rank0", memoryFile))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", text)
	m, ok := parseMeasured(text)
	if text, err = os.ReadFile(heard); err != nil || !ok || json.Unmarshal(text, &want) != nil {
		t.Fatalf("%v, %v: %s", ok, err, text)
	}
	return m, want
}

func compareSteps(t *testing.T, m memory.Measurement, want pytorch) {
	t.Helper()
	if m.Launch.Forward <= 0 {
		t.Errorf("launches %+v", m.Launch)
	}
	last := int64(0)
	peak := func(what string, got int64, of [2]int64) {
		t.Helper()
		rose := of[1] > last
		last = of[1]
		if rose && got != of[1] || !rose && got != 0 {
			t.Errorf("the peak of the %s is %d, PyTorch says %d", what, got, of[1])
		}
	}
	for i, s := range []memory.StepMemory{m.First, m.Second} {
		w := want.Steps[i]
		if s.Forward != w.Forward[0] || s.Before != w.Backward[0] || s.After != w.Optimizer[0] {
			t.Errorf("step %d: held %+v, PyTorch says %+v", i+1, s, w)
		}
		peak("forward", s.ForwardPeak, w.Forward)
		peak("backward", s.BackwardPeak, w.Backward)
		peak("optimizer", s.OptimizerPeak, w.Optimizer)
	}
	if m.Peak != want.Peak || m.Failed != "" || m.Steps != 5 || m.States < 2<<30 || m.Batch != 4096 || m.StepSeconds <= 0 || m.CallSeconds <= 0 || m.CallSeconds > m.StepSeconds {
		t.Errorf("measured %+v, PyTorch's peak is %d", m, want.Peak)
	}
}

func compareFailure(t *testing.T, m memory.Measurement, want pytorch, instant string) {
	t.Helper()
	if m.Failed != instant || m.Allocated != want.Allocated || m.Requested != want.Requested {
		t.Errorf("failed in %q with %d held and %d wanted; PyTorch says %d and %d", m.Failed, m.Allocated, m.Requested, want.Allocated, want.Requested)
	}
	// A share is a float: the bytes differ by rounding.
	if off := m.Allowed - want.Allowed; off < -(1<<20) || off > 1<<20 {
		t.Errorf("allowed are %d, the job asked for %d", m.Allowed, want.Allowed)
	}
	if reached := len(want.Marks); (reached == 16) != (instant != "forward") || reached < 2 {
		t.Errorf("%d blocks were reached", reached)
	}
}
