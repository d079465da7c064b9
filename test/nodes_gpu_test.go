package test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/strategy"
)

// TestNodesOnGPUs is one training on nodes that see one GPU each. The last has less memory: its rescue
// changes no loss. NCCL needs a GPU for each node, since it does not support two ranks on one. With fewer
// than four GPUs, four nodes share them, over gloo.
func TestNodesOnGPUs(t *testing.T) {
	python := os.Getenv("GPURUN_TEST_PYTHON")
	nvml, err := ranks.OpenNVML()
	if err != nil || python == "" {
		t.Skipf("needs two NVIDIA GPUs and GPURUN_TEST_PYTHON: %v", err)
	}
	t.Cleanup(func() { _ = nvml.Close() })
	devices, err := nvml.Devices()
	if err != nil || len(devices) < 2 {
		t.Skipf("needs two NVIDIA GPUs: %d, %v", len(devices), err)
	}
	ways := map[string]int{"nccl": len(devices)}
	if len(devices) < 4 {
		ways["gloo"] = 4
	}
	for backend, nodes := range ways {
		t.Run(fmt.Sprintf("%s/%d", backend, nodes), func(t *testing.T) {
			calm, tight := map[int][]string{}, map[int][]string{}
			for k := range nodes {
				calm[k] = []string{"PYTHON_EXEC=" + python, "CUDA_VISIBLE_DEVICES=" + strconv.Itoa(k%len(devices)), "BACKEND=" + backend}
				tight[k] = calm[k]
			}
			tight[nodes-1] = append([]string{"TAKEN_MIB=3000"}, calm[nodes-1]...)
			rescuedOnGPUs(t, calm, tight)
			for _, d := range devices {
				if now, err := nvml.Devices(); err != nil || now[d.Index].Used > d.Used+512<<20 {
					t.Errorf("GPU %d: %+v in use, %d before, %v", d.Index, now, d.Used, err)
				}
			}
		})
	}
}

// rescuedOnGPUs trains with enough memory on all nodes, and with less on the last: the losses must be the
// same.
func rescuedOnGPUs(t *testing.T, calm, tight map[int][]string) {
	zeros := make([]int, len(calm))
	undisturbed := crewOf(t, len(calm), copyOf(t, filepath.Join("testdata", "nodes_gpu")), calm)
	undisturbed.exits(t, zeros...)
	want := lossesOf(undisturbed.nodes[0].said.String())
	if v := undisturbed.verdict(t); v.Code != 0 || len(v.Attempts) != 1 || len(want) != 3 {
		t.Fatalf("%+v, losses %q", v, want)
	}

	c := crewOf(t, len(tight), copyOf(t, filepath.Join("testdata", "nodes_gpu")), tight)
	c.exits(t, zeros...)
	t.Logf("node 0 says\n%s", c.nodes[0].said.String())
	v := c.verdict(t)
	first, final := v.Attempts[0], v.Attempts[len(v.Attempts)-1]
	if v.Outcome != strategy.Trained || len(v.Attempts) != 2 || first.Rank == nil || *first.Rank != len(tight)-1 || first.Cause != "cuda-oom" {
		t.Errorf("%+v", v)
	}
	if samples(first.Plan) != samples(final.Plan) {
		t.Errorf("the global batch is that of %v, and was that of %v", final.Plan, first.Plan)
	}
	got := lossesOf(c.nodes[0].said.String())
	for k := range want {
		if k >= len(got) || math.Abs(lossOf(t, got[k])/lossOf(t, want[k])-1) > 1e-4 {
			t.Errorf("losses %q, and undisturbed %q", got, want)
		}
	}
}

// lossOf reads "step N loss X".
func lossOf(t *testing.T, line string) float64 {
	t.Helper()
	loss, err := strconv.ParseFloat(line[strings.LastIndex(line, " ")+1:], 64)
	if err != nil {
		t.Fatal(err)
	}
	return loss
}
