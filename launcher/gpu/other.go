package gpu

import (
	"io/fs"
	"path"
	"regexp"
	"strings"
)

// An other is a maker of accelerators that gpurun knows by their files only: it can
// tell that they are there, and how many, and nothing of their memory.
type other struct {
	// accelerator is PyTorch's word for them, name the maker's for people.
	accelerator, name, source string
	// visible are the variables that choose among them, the strongest first.
	visible []string
	count   func(fs.FS) int
}

var others = []other{
	{"rocm", "AMD GPU (ROCm)", "/sys/class/kfd", []string{"ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"}, countKFD},
	{"hpu", "Gaudi accelerator", "/dev/hl*", []string{"HABANA_VISIBLE_DEVICES"}, countFiles("dev", `^hl\d+$`)},
	{"npu", "Ascend accelerator", "/dev/davinci*", []string{"ASCEND_RT_VISIBLE_DEVICES", "ASCEND_VISIBLE_DEVICES"}, countFiles("dev", `^davinci\d+$`)},
	{"neuron", "Neuron accelerator", "/dev/neuron*", []string{"NEURON_RT_VISIBLE_CORES"}, countFiles("dev", `^neuron\d+$`)},
}

// withoutNVIDIA is the view of a node that has accelerators of another maker; empty
// where it has none.
func withoutNVIDIA(env []string, root fs.FS) View {
	for _, o := range others {
		n := o.count(root)
		if n == 0 {
			continue
		}
		v := View{Count: n, Source: o.source, Accelerator: o.accelerator, Name: o.name}
		for _, variable := range o.visible {
			if list, set := lookup(env, variable); set && list != "all" {
				v.Count, v.Source = min(n, len(parseVisible(list))), variable+" of "+o.source
				break
			}
		}
		return v
	}
	return View{}
}

// countKFD counts AMD's GPUs: nodes of the compute driver that have a gpu_id, unlike
// the processors beside them.
func countKFD(root fs.FS) int {
	if !openable(root, "dev/kfd") {
		return 0
	}
	ids, err := fs.Glob(root, "sys/class/kfd/kfd/topology/nodes/*/gpu_id")
	if err != nil {
		return 0
	}
	n := 0
	for _, id := range ids {
		if text, err := fs.ReadFile(root, id); err == nil && strings.Trim(string(text), "0 \n") != "" {
			n++
		}
	}
	return n
}

// countFiles counts the device files that this process may open.
func countFiles(folder, pattern string) func(fs.FS) int {
	re := regexp.MustCompile(pattern)
	return func(root fs.FS) int {
		entries, err := fs.ReadDir(root, folder)
		if err != nil {
			return 0
		}
		n := 0
		for _, e := range entries {
			if re.MatchString(e.Name()) && openable(root, path.Join(folder, e.Name())) {
				n++
			}
		}
		return n
	}
}
