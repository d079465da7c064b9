package ranks

import (
	"path"
	"strings"

	"github.com/gpurun/gpurun/strategy"
)

// FileSystemOf describes the file system of an absolute path from an error; nil if it is not known.
// Its space is measured only after a full one: a server that does not answer would not let statfs
// return.
func (m Machine) FileSystemOf(name string, full bool) *strategy.FileSystem {
	var found *strategy.FileSystem
	for place, system := range m.mounts() {
		point := unescape(place[4])
		if _, inside := within(point, path.Clean(name)); !inside || found != nil && len(point) < len(found.Mount) {
			continue // the last of several mounts at a point covers the others
		}
		found = &strategy.FileSystem{
			Path: name, Mount: point, Type: system[0], Source: unescape(system[1]),
			ReadOnly: strings.HasPrefix(place[5]+",", "ro,") || strings.HasPrefix(system[2]+",", "ro,"),
		}
	}
	if found == nil || !full {
		return found
	}
	if disk, err := DiskAt(name); err == nil {
		found.Total, found.Free = disk.Total, disk.Free
	}
	return found
}
