package ranks

import (
	"io/fs"
	"os"
	"strconv"
	"strings"
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
