package ranks

import (
	"maps"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// What the kernel lists counts without NVML only where CUDA sees the same for certain.
func TestListed(t *testing.T) {
	node := &fstest.MapFile{}
	two := fstest.MapFS{
		"proc/driver/nvidia/gpus/0000:04:00.0/information": procGPU("1", uuids[0]),
		"proc/driver/nvidia/gpus/0000:84:00.0/information": procGPU("0", uuids[1]),
		"proc/driver/nvidia/gpus/0000:c4:00.0/information": procGPU("2", uuids[2]), // not ours
		"proc/driver/nvidia/capabilities/gpu0/mig":         &fstest.MapFile{Mode: 0o755 | 1<<31},
		"dev/nvidia0": node, "dev/nvidia1": node, "dev/nvidiactl": node,
	}
	with := func(name string, f *fstest.MapFile) fstest.MapFS {
		root := maps.Clone(two)
		root[name] = f
		return root
	}
	const source = "/proc/driver/nvidia/gpus"
	sees := func(source string, ids ...string) *DeviceView {
		return &DeviceView{Count: len(ids), IDs: ids, Source: source, Model: "NVIDIA H200"}
	}
	for _, test := range []struct {
		name string
		root fstest.MapFS
		env  string
		want *DeviceView // nil where it is not certain
	}{
		{"all of them", two, "A=b", sees(source, uuids[:2]...)},
		{"one by its number", two, "CUDA_VISIBLE_DEVICES=1", sees("CUDA_VISIBLE_DEVICES of "+source, uuids[1])},
		{"none that is there", two, "CUDA_VISIBLE_DEVICES=7", sees("CUDA_VISIBLE_DEVICES of " + source)},
		{"none at all", fstest.MapFS{}, "CUDA_VISIBLE_DEVICES=", &DeviceView{Source: "CUDA_VISIBLE_DEVICES"}},
		{"by name", two, "CUDA_VISIBLE_DEVICES=" + uuids[1], nil},
		{"an instance by name", two, "CUDA_VISIBLE_DEVICES=MIG-a", nil},
		{"instances", with("proc/driver/nvidia/capabilities/gpu1/mig/gi7/access", node), "A=b", nil},
		{"one that does not say who it is", with("proc/driver/nvidia/gpus/0000:84:00.0/information", procGPU("0", "GPU-????????-????-????-????-????????????")), "A=b", nil},
		{"no list", fstest.MapFS{"dev/nvidia0": node}, "A=b", nil},
		{"no GPU", fstest.MapFS{}, "A=b", nil},
	} {
		got, certain := listed([]string{test.env}, test.root)
		if certain != (test.want != nil) {
			t.Errorf("%s: certain %v", test.name, certain)
			continue
		}
		if test.want == nil {
			continue
		}
		if diff := cmp.Diff(*test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}
