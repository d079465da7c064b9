package ranks

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func TestVisible(t *testing.T) {
	four := newBoard(h100(0), h100(1), h100(2), h100(3))
	for list, want := range map[string][]int{
		"0":                           {0},
		"2,0":                         {2, 0},
		"0,1,2,3":                     {0, 1, 2, 3},
		" 1 , 3":                      {1, 3},
		"1gpu,2":                      {1, 2},
		"+1":                          {1},
		"":                            nil,
		"-1":                          nil,
		"0,-1,1":                      {0},
		"NoDevFiles":                  nil,
		"none":                        nil,
		"1,4,0":                       {1},
		"9":                           nil,
		"0,,1":                        {0},
		"1,2,1":                       nil,
		"1,01":                        nil,
		"0," + uuids[1]:               {0},
		uuids[3] + "," + uuids[0]:     {3, 0},
		"GPU-9":                       {2},
		"GPU-9,GPU-e0":                {2, 3},
		"GPU-5":                       nil,
		"GPU-9,GPU-5,GPU-e":           {2},
		"GPU-9,GPU-9f":                nil,
		"GPU-9,0":                     {2},
		uuids[2] + " and more":        {2},
		"GPU-9 ":                      nil,
		"GPU-":                        nil,
		"0,1,9,0":                     {0, 1}, // the list ends before the repetition
		"-0,1":                        {0, 1},
		"4294967297":                  {1},
		"GPU-zz":                      nil,
		"gpu-9":                       nil,
		"MIG-11111111":                nil,
		"99999999999999999999":        nil,
		strings.Repeat("0,", 3) + "1": nil,
	} {
		view, err := visible([]string{"CUDA_VISIBLE_DEVICES=0,1", "CUDA_VISIBLE_DEVICES=" + list}, &NVML{driver: four}, fstest.MapFS{})
		if err != nil {
			t.Errorf("%q: %v", list, err)
		}
		var got []int
		for _, d := range view.Devices {
			got = append(got, d.Index)
		}
		if !slices.Equal(got, want) || view.Count != len(want) || len(view.IDs) != len(want) {
			t.Errorf("%q: devices %v, count %d, IDs %q, want %v", list, got, view.Count, view.IDs, want)
		}
		if !strings.HasPrefix(view.Source, "CUDA_VISIBLE_DEVICES") {
			t.Errorf("%q: source %q", list, view.Source)
		}
	}
}

func TestVisibleUnset(t *testing.T) {
	b := newBoard(h100(0), h100(1))
	view, err := visible(nil, &NVML{driver: b}, fstest.MapFS{})
	want := DeviceView{Count: 2, IDs: uuids[:2], Devices: []Device{h100(0), h100(1)}, Source: "nvml"}
	if diff := cmp.Diff(want, view); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	b.broken[uuids[1]] = errLost
	view, err = visible(nil, &NVML{driver: b}, fstest.MapFS{})
	if view.Count != 1 || !errors.Is(err, errLost) {
		t.Errorf("one lost: %+v, %v", view, err)
	}
}

// CUDA puts the faster GPU first, NVML the one with the lower bus address: which
// is cuda:0 is known only by UUID or on request.
func TestVisibleMixed(t *testing.T) {
	small := h100(1)
	small.Name = "NVIDIA T400"
	n := &NVML{driver: newBoard(small, h100(0))}
	for env, known := range map[string]bool{
		"":                                 false,
		"CUDA_VISIBLE_DEVICES=0,1":         false,
		"CUDA_VISIBLE_DEVICES=" + uuids[1]: true,
		"CUDA_DEVICE_ORDER=PCI_BUS_ID":     true,
		"CUDA_DEVICE_ORDER=FASTEST_FIRST":  false,
	} {
		view, err := visible([]string{env}, n, fstest.MapFS{})
		if err != nil || view.Count == 0 || (view.Devices != nil) != known {
			t.Errorf("%q: %+v, %v", env, view, err)
		}
	}
}

func TestVisibleMIG(t *testing.T) {
	cut := h100(1)
	cut.MIG = true
	part := func(uuid string) Device {
		return Device{Index: 1, UUID: uuid, Name: "NVIDIA H100 MIG 1g.10gb", Total: 10 * gib, MIG: true, Capability: [2]int{9, 0}}
	}
	b := newBoard(h100(0), cut)
	b.parts[1] = []Device{part("MIG-aa11"), part("MIG-bb22")}
	for env, want := range map[string]string{
		"CUDA_VISIBLE_DEVICES=0":                 uuids[0],
		"CUDA_VISIBLE_DEVICES=MIG-bb22":          "MIG-bb22",
		"CUDA_VISIBLE_DEVICES=MIG-b":             "MIG-bb22",
		"CUDA_VISIBLE_DEVICES=MIG-bb22,MIG-aa11": "MIG-bb22", // one instance a process
		"CUDA_VISIBLE_DEVICES=1":                 "MIG-aa11", // the first of the GPU
		"PATH=/bin":                              "MIG-aa11", // no whole GPU beside an instance
		"CUDA_VISIBLE_DEVICES=MIG-cc33":          "",
	} {
		view, err := visible([]string{env}, &NVML{driver: b}, fstest.MapFS{})
		if got := strings.Join(view.IDs, " "); got != want || err != nil || view.Count != len(view.IDs) {
			t.Errorf("%s: %q, %v, want %q", env, got, err, want)
		}
	}
	b.parts = nil
	if view, err := visible(nil, &NVML{driver: b}, fstest.MapFS{}); view.Count != 1 || err != nil {
		t.Errorf("a GPU cut into nothing: %+v, %v", view, err)
	}
}

// procGPU is what the driver's /proc shows of one GPU.
func procGPU(minor, uuid string) *fstest.MapFile {
	return &fstest.MapFile{Data: []byte("Model: \t\t NVIDIA H200\nIRQ:   \t\t 17\nGPU UUID: \t " + uuid +
		"\nBus Location: \t 0000:04:00.0\nDevice Minor: \t " + minor + "\n")}
}

func TestVisibleWithoutNVML(t *testing.T) {
	node := &fstest.MapFile{}
	proc := fstest.MapFS{
		"proc/driver/nvidia/gpus/0000:04:00.0/information": procGPU("1", uuids[0]),
		"proc/driver/nvidia/gpus/0000:84:00.0/information": procGPU("0", uuids[1]),
		"proc/driver/nvidia/gpus/0000:c4:00.0/information": procGPU("2", "GPU-????????-????-????-????-????????????"),
		"dev/nvidia0": node, "dev/nvidia1": node, "dev/nvidiactl": node, "dev/nvidia-uvm": node,
	}
	all := fstest.MapFS{"dev/nvidia2": node}
	for name, f := range proc {
		all[name] = f
	}
	nodes := fstest.MapFS{"dev/nvidia0": node, "dev/nvidia3": node, "dev/nvidiactl": node, "dev/nvidia-caps/x": node}
	tests := []struct {
		root   fstest.MapFS
		env    string
		ids    []string
		source string
	}{
		{proc, "", uuids[:2], "/proc/driver/nvidia/gpus"}, // the third one's device file is hidden
		{proc, "CUDA_VISIBLE_DEVICES=1", uuids[1:2], "CUDA_VISIBLE_DEVICES of /proc/driver/nvidia/gpus"},
		{proc, "CUDA_VISIBLE_DEVICES=" + uuids[1], uuids[1:2], "CUDA_VISIBLE_DEVICES of /proc/driver/nvidia/gpus"},
		{all, "", []string{uuids[0], uuids[1], "2"}, "/proc/driver/nvidia/gpus"},
		{nodes, "", []string{"0", "1"}, "/dev/nvidia*"},
		{nodes, "CUDA_VISIBLE_DEVICES=1,2", []string{"1"}, "CUDA_VISIBLE_DEVICES of /dev/nvidia*"},
		{fstest.MapFS{}, "", nil, "/dev/nvidia*"},
		{fstest.MapFS{}, "CUDA_VISIBLE_DEVICES=0,1", nil, "CUDA_VISIBLE_DEVICES of /dev/nvidia*"},
	}
	for _, test := range tests {
		got, err := visible([]string{test.env}, nil, test.root)
		want := DeviceView{Count: len(test.ids), IDs: test.ids, Source: test.source}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%q: %v\n%s", test.env, err, diff)
		}
	}
}

func FuzzVisible(f *testing.F) {
	for _, list := range []string{"0,1", "GPU-5,GPU-9", "MIG-aa", "-1", "1x,2", "0,0"} {
		f.Add(list)
	}
	n := &NVML{driver: newBoard(h100(0), h100(1), h100(2))}
	f.Fuzz(func(t *testing.T, list string) {
		view, err := visible([]string{"CUDA_VISIBLE_DEVICES=" + list}, n, fstest.MapFS{})
		if err != nil || view.Count > 3 || len(view.IDs) != view.Count || len(view.Devices) != view.Count {
			t.Fatalf("%+v, %v", view, err)
		}
		ids := slices.Clone(view.IDs)
		slices.Sort(ids)
		if len(slices.Compact(ids)) != view.Count {
			t.Fatalf("%q names a device twice", view.IDs)
		}
	})
}

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
