package ranks

import (
	"testing"
	"testing/fstest"
)

// An accelerator that gpurun does not know is counted and called what it is.
func TestAcceleratorsOfOtherMakers(t *testing.T) {
	amd := fstest.MapFS{
		"dev/kfd": {}, "dev/dri/renderD128": {},
		"sys/class/kfd/kfd/topology/nodes/0/gpu_id": {Data: []byte("0\n")},
		"sys/class/kfd/kfd/topology/nodes/1/gpu_id": {Data: []byte("51085\n")},
		"sys/class/kfd/kfd/topology/nodes/2/gpu_id": {Data: []byte("28851\n")},
	}
	hidden := fstest.MapFS{"sys/class/kfd/kfd/topology/nodes/1/gpu_id": {Data: []byte("51085\n")}}
	gaudi := fstest.MapFS{"dev/hl0": {}, "dev/hl1": {}, "dev/hl_controlD0": {}}
	both := fstest.MapFS{"dev/davinci0": {}, "dev/nvidia0": {}}
	for name, test := range map[string]struct {
		root  fstest.MapFS
		env   []string
		count int
		kind  string
	}{
		"AMD":                       {amd, nil, 2, "rocm"},
		"one of AMD's":              {amd, []string{"HIP_VISIBLE_DEVICES=1"}, 1, "rocm"},
		"none of AMD's":             {amd, []string{"ROCR_VISIBLE_DEVICES="}, 0, "rocm"},
		"as CUDA's":                 {amd, []string{"CUDA_VISIBLE_DEVICES=0"}, 1, "rocm"},
		"AMD's, not ours":           {hidden, nil, 0, ""},
		"Gaudi":                     {gaudi, nil, 2, "hpu"},
		"a CPU":                     {fstest.MapFS{}, nil, 0, ""},
		"NVIDIA's beside another":   {both, nil, 1, ""},
		"NVIDIA's, none is visible": {both, []string{"CUDA_VISIBLE_DEVICES="}, 0, ""},
	} {
		v, err := visible(test.env, nil, test.root)
		if err != nil || v.Count != test.count || v.Accelerator != test.kind {
			t.Errorf("%s: %+v, %v, want %d of %q", name, v, err, test.count, test.kind)
		}
	}
}
