package ranks

import (
	"fmt"
	"github.com/gpurun/gpurun/launcher/system"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// procInventory lists the GPUs that the kernel driver knows and that this process
// may open, in the order of the PCI bus. A control group can hide the device file
// of a GPU that /proc still shows.
func procInventory(root fs.FS) []Device {
	// ReadDir sorts, and the folders are named by PCI address.
	entries, err := fs.ReadDir(root, "proc/driver/nvidia/gpus")
	if err != nil {
		return nil
	}
	var devices []Device
	for _, e := range entries {
		text, err := fs.ReadFile(root, path.Join("proc/driver/nvidia/gpus", e.Name(), "information"))
		if err != nil {
			continue
		}
		fields := system.ProcFields(text)
		if !openable(root, "dev/nvidia"+fields["Device Minor"]) {
			continue
		}
		d := Device{Index: len(devices), Name: fields["Model"], UUID: fields["GPU UUID"]}
		// A GPU that was not used since boot shows question marks.
		if d.UUID == "" || strings.Contains(d.UUID, "?") {
			d.UUID = strconv.Itoa(d.Index)
		}
		devices = append(devices, d)
	}
	return devices
}

// nodeInventory counts the device files that this process may open.
func nodeInventory(root fs.FS) []Device {
	names, err := fs.Glob(root, "dev/nvidia[0-9]*")
	if err != nil {
		return nil
	}
	var minors []int
	for _, name := range names {
		minor, err := strconv.Atoi(strings.TrimPrefix(name, "dev/nvidia"))
		if err == nil && openable(root, name) {
			minors = append(minors, minor)
		}
	}
	slices.Sort(minors)
	var devices []Device
	for k := range minors {
		devices = append(devices, Device{Index: k, UUID: fmt.Sprint(k)})
	}
	return devices
}

func openable(root fs.FS, name string) bool {
	f, err := root.Open(name)
	if err != nil {
		return false
	}
	f.Close() //nolint:errcheck // opened only to see whether that is allowed
	return true
}

// ListedDevices returns the GPUs that a job with this environment would see by the kernel
// driver's own list in /proc, which takes no time, where that is certain; Visible reads
// the same from NVML, with figures. It is not certain, and the result false, where
//
//   - there is no list: no GPU, or one that is reached in another way (WSL);
//   - CUDA_VISIBLE_DEVICES names devices by UUID, which a list may not show;
//   - a GPU is cut into MIG instances, of which CUDA sees one at most;
//   - a GPU has no UUID: it was not used since boot, or it is lost.
func ListedDevices(env []string) (DeviceView, bool) { return listed(env, os.DirFS("/")) }

// HidesDevices reports whether an environment hides all GPUs from a job, whatever there is.
func HidesDevices(env []string) bool {
	list, chosen := lookup(env, "CUDA_VISIBLE_DEVICES")
	return chosen && len(parseVisible(list)) == 0
}

func listed(env []string, root fs.FS) (DeviceView, bool) {
	if HidesDevices(env) {
		return visibleNone, true
	}
	if list, _ := lookup(env, "CUDA_VISIBLE_DEVICES"); byName(parseVisible(list)) {
		return DeviceView{}, false
	}
	devices := procInventory(root)
	for _, d := range devices {
		if !strings.HasPrefix(d.UUID, "GPU-") {
			return DeviceView{}, false
		}
	}
	instances, err := fs.Glob(root, "proc/driver/nvidia/capabilities/gpu*/mig/gi*")
	if len(devices) == 0 || err != nil || len(instances) > 0 {
		return DeviceView{}, false
	}
	view, err := visible(env, nil, root)
	view.Model = devices[0].Name
	return view, err == nil
}

// An other is a maker of accelerators that gpurun knows by their files only: it can count them,
// and knows nothing of their memory.
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
func withoutNVIDIA(env []string, root fs.FS) DeviceView {
	for _, o := range others {
		n := o.count(root)
		if n == 0 {
			continue
		}
		v := DeviceView{Count: n, Source: o.source, Accelerator: o.accelerator, Name: o.name}
		for _, variable := range o.visible {
			if list, set := lookup(env, variable); set && list != "all" {
				v.Count, v.Source = min(n, len(parseVisible(list))), variable+" of "+o.source
				break
			}
		}
		return v
	}
	return DeviceView{}
}

// countKFD counts AMD's GPUs: nodes of the compute driver that have a gpu_id, unlike processors.
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
