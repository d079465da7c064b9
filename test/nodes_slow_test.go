package test

import (
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/test/testenv"
)

// TestASlowNodeIsNamed is a training whose ranks wait for each other in each step, on two nodes. After some
// minutes, node 0 reports what one of them is slow at: its data, or its forward pass. With two GPUs it uses
// NCCL.
func TestASlowNodeIsNamed(t *testing.T) {
	python := testenv.Torch(t)
	lab(t)
	gpus := 0
	if nvml, err := ranks.OpenNVML(); err == nil {
		defer nvml.Close()
		devices, _ := nvml.Devices()
		gpus = len(devices)
	}
	for slow, words := range map[string]string{
		"data":    `rank 1 of node 1 \(.*\) is slow: a step of \S+ s waits \S+ s for data, and the other's \S+ s`,
		"forward": `rank 1 of node 1 \(.*\) is slow: the forward pass takes \S+ s of a step's \S+ s, and the other's \S+ s`,
	} {
		t.Run(slow, func(t *testing.T) {
			t.Parallel()
			env := map[int][]string{}
			for k := range 2 {
				env[k] = []string{"PYTHON_EXEC=" + python, "CUDA_VISIBLE_DEVICES="}
				if gpus > 1 {
					env[k] = []string{"PYTHON_EXEC=" + python, "CUDA_VISIBLE_DEVICES=" + strconv.Itoa(k), "BACKEND=nccl"}
				}
			}
			env[1] = append(env[1], "SLOW="+slow)
			c := crewOf(t, 2, copyOf(t, filepath.Join("testdata", "nodes_slow")), env)
			says := func(pattern string) func() bool {
				return func() bool { return regexp.MustCompile(pattern).MatchString(c.nodes[0].said.String()) }
			}
			await(t, "the first steps", says(`step 100 after`))
			await(t, "many steps", says(`step 300 after`))
			await(t, "a word of slowness", says(`is slow:`))
			c.says(t, 0, words)
			t.Log(regexp.MustCompile(`.*slow:.*`).FindString(c.nodes[0].said.String()))
		})
	}
}
