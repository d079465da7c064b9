package ranks

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/launcher/system"
)

// A DeviceView is the set of GPUs that a job would see, in CUDA's order: its device k
// is cuda:k.
type DeviceView struct {
	// Count is how many there are.
	Count int
	// IDs are the devices' UUIDs as far as known, else their numbers among the GPUs that this
	// process may use; Count of them.
	IDs []string
	// Devices are the same, with their figures at the moment of the call; nil
	// without NVML, or where CUDA's order cannot be known.
	Devices []Device
	// Accelerator is PyTorch's word for those of another maker than NVIDIA, "rocm" for example,
	// and Name the one for people; empty for NVIDIA's. Of others only the count is known.
	Accelerator, Name string
	// Model is the first one's name where Listed knows it; Devices have theirs.
	Model string
	// Source is the origin of the count: "nvml", "/proc/driver/nvidia/gpus", "/dev/nvidia*", with
	// "CUDA_VISIBLE_DEVICES of " before it where the variable chooses among them.
	Source string
}

// VisibleDevices returns the GPUs that a job with this environment would see, without starting CUDA. n
// is nil on a node without NVML. A node without GPUs is an empty view, not an error; an error is
// the driver's, and the view holds what it did answer.
func VisibleDevices(env []string, n *NVML) (DeviceView, error) {
	return visible(env, n, os.DirFS("/"))
}

// visibleNone is the view of a job from which all GPUs are hidden.
var visibleNone = DeviceView{Source: "CUDA_VISIBLE_DEVICES"}

func visible(env []string, n *NVML, root fs.FS) (DeviceView, error) {
	list, chosen := lookup(env, "CUDA_VISIBLE_DEVICES")
	wanted := parseVisible(list)
	if chosen && len(wanted) == 0 {
		if n == nil && len(nodeInventory(root)) == 0 {
			if v := withoutNVIDIA(env, root); v.Name != "" {
				return v, nil
			}
		}
		return visibleNone, nil
	}
	devices, source, err := present(n, root)
	if len(devices) == 0 && err == nil {
		if v := withoutNVIDIA(env, root); v.Name != "" {
			return v, nil
		}
	}
	if chosen {
		source = "CUDA_VISIBLE_DEVICES of " + source
		devices = choose(wanted, devices, instancesOf(n))
	}
	devices = enumerable(devices, instancesOf(n))

	view := DeviceView{Count: len(devices), Source: source}
	for _, d := range devices {
		view.IDs = append(view.IDs, d.UUID)
	}
	if strings.HasSuffix(source, "nvml") && (ordered(devices, env) || byName(wanted)) {
		view.Devices = devices
	}
	return view, err
}

// present lists the GPUs that this process may use. Without NVML only their
// identity is known.
func present(n *NVML, root fs.FS) ([]Device, string, error) {
	var err error
	if n != nil {
		var devices []Device
		if devices, err = n.Devices(); err == nil || len(devices) > 0 {
			return devices, "nvml", err
		}
	}
	if devices := procInventory(root); len(devices) > 0 {
		return devices, "/proc/driver/nvidia/gpus", err
	}
	return nodeInventory(root), "/dev/nvidia*", err
}

// instancesOf returns how to list a GPU's MIG instances.
func instancesOf(n *NVML) func(Device) []Device {
	return func(d Device) []Device {
		if n == nil {
			return nil
		}
		instances, err := n.driver.instances(d.Index)
		if err != nil {
			return nil // a GPU that cannot list its instances has none to offer
		}
		return instances
	}
}

// choose returns the devices that the words of CUDA_VISIBLE_DEVICES name. As in
// CUDA, the first word that names none ends the list, and a device named twice
// leaves none at all.
func choose(wanted []string, devices []Device, instances func(Device) []Device) []Device {
	var chosen []Device
	taken := map[string]bool{}
	for _, word := range wanted {
		d, ok := find(word, devices, instances)
		if !ok {
			break
		}
		if taken[d.UUID] {
			return nil
		}
		taken[d.UUID] = true
		chosen = append(chosen, d)
	}
	return chosen
}

// find returns the one device that a word names: a number, or the beginning of a
// UUID that no other device shares.
func find(word string, devices []Device, instances func(Device) []Device) (Device, bool) {
	if k, ok := ordinal(word); ok {
		if k >= len(devices) {
			return Device{}, false
		}
		return devices[k], true
	}
	candidates := devices
	if strings.HasPrefix(word, "MIG-") {
		candidates = nil
		for _, d := range devices {
			candidates = append(candidates, instances(d)...)
		}
	}
	var found Device
	matches := 0
	for _, d := range candidates {
		if strings.HasPrefix(d.UUID, word) {
			found, matches = d, matches+1
		}
	}
	return found, matches == 1
}

// enumerable applies CUDA's two rules about MIG: a process sees one instance at
// most, and once it sees an instance it sees no whole GPU
// (https://docs.nvidia.com/datacenter/tesla/mig-user-guide/, "CUDA device
// enumeration"). A GPU that is cut into no instance offers nothing.
func enumerable(devices []Device, instances func(Device) []Device) []Device {
	var whole []Device
	for _, d := range devices {
		if strings.HasPrefix(d.UUID, "MIG-") {
			return []Device{d}
		}
		if !d.MIG {
			whole = append(whole, d)
			continue
		}
		if parts := instances(d); len(parts) > 0 {
			return parts[:1]
		}
	}
	return whole
}

// ordered reports whether CUDA numbers the devices as NVML does, by PCI bus. It puts a faster model first
// unless CUDA_DEVICE_ORDER is set; among equal models that makes no difference.
func ordered(devices []Device, env []string) bool {
	if order, _ := lookup(env, "CUDA_DEVICE_ORDER"); order == "PCI_BUS_ID" {
		return true
	}
	for _, d := range devices {
		if d.Name != devices[0].Name {
			return false
		}
	}
	return true
}

// byName reports whether the words are UUIDs, which mean the same in any order.
func byName(wanted []string) bool {
	if len(wanted) == 0 {
		return false
	}
	_, number := ordinal(wanted[0])
	return !number
}

// lookup returns the last value of a variable, the one that os/exec hands on.
func lookup(env []string, name string) (string, bool) {
	for i := len(env) - 1; i >= 0; i-- {
		if value, ok := strings.CutPrefix(env[i], name+"="); ok {
			return value, true
		}
	}
	return "", false
}

// uuidLength is the length of a GPU's UUID; CUDA compares no further.
const uuidLength = len("GPU-00000000-0000-0000-0000-000000000000")

// parseVisible splits CUDA_VISIBLE_DEVICES as CUDA does. The first word decides what the list
// holds: UUIDs of GPUs, UUIDs of MIG instances, or numbers. A word of another sort, or a negative
// number, ends the list, so that "-1" and "NoDevFiles" are empty lists. What is not in NVIDIA's
// manual was seen with driver 580; PyTorch does nearly the same in
// torch.cuda._parse_visible_devices.
func parseVisible(list string) []string {
	for _, prefix := range []string{"GPU-", "MIG-"} {
		if strings.HasPrefix(list, prefix) {
			return parseWords(list, func(word string) (string, bool) {
				if prefix == "GPU-" {
					word = word[:min(len(word), uuidLength)]
				}
				return word, len(word) > len(prefix) && strings.HasPrefix(word, prefix)
			})
		}
	}
	return parseWords(list, func(word string) (string, bool) {
		k, ok := leadingNumber(strings.TrimSpace(word))
		return strconv.Itoa(k), ok
	})
}

// VisibleWords are the devices that a value of CUDA_VISIBLE_DEVICES names, as CUDA reads it;
// none for "", "-1" or "NoDevFiles".
func VisibleWords(list string) []string { return parseVisible(list) }

func parseWords(list string, parse func(string) (string, bool)) []string {
	var words []string
	for word := range strings.SplitSeq(list, ",") {
		parsed, ok := parse(word)
		if !ok {
			break
		}
		words = append(words, parsed)
	}
	return words
}

// leadingNumber reads as strtol does, into 32 bits: a sign and the digits that a
// word begins with. A negative number is none.
func leadingNumber(word string) (int, bool) {
	end := 0
	for end < len(word) && (isDigit(word[end]) || end == 0 && (word[0] == '+' || word[0] == '-')) {
		end++
	}
	long, err := strconv.ParseInt(word[:end], 10, 64)
	k := int32(long)
	return int(k), err == nil && k >= 0
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// ordinal reads a word of parseVisible that is a number.
func ordinal(word string) (int, bool) {
	k, err := strconv.Atoi(word)
	return k, err == nil
}

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
	{"rocm", "AMD GPU (ROCm)", "/sys/class/kfd", []string{"ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
		"CUDA_VISIBLE_DEVICES"}, countKFD},
	{"hpu", "Gaudi accelerator", "/dev/hl*", []string{"HABANA_VISIBLE_DEVICES"}, countFiles("dev", `^hl\d+$`)},
	{"npu", "Ascend accelerator", "/dev/davinci*", []string{"ASCEND_RT_VISIBLE_DEVICES", "ASCEND_VISIBLE_DEVICES"},
		countFiles("dev", `^davinci\d+$`)},
	{"neuron", "Neuron accelerator", "/dev/neuron*", []string{"NEURON_RT_VISIBLE_CORES"},
		countFiles("dev", `^neuron\d+$`)},
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
