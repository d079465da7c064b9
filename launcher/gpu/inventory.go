package gpu

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/launcher/procfs"
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
		fields := procfs.Fields(text)
		if !openable(root, "dev/nvidia"+fields["Device Minor"]) {
			continue
		}
		d := Device{Index: len(devices), Name: fields["Model"], UUID: fields["GPU UUID"]}
		// A GPU that nobody has used since boot shows question marks.
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
