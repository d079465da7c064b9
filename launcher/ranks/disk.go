package ranks

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/strategy"
)

// A Disk is the file system under a path. All figures are bytes.
type Disk struct {
	Total int64
	Free  int64 // for us; root may have a reserve beyond it
	// RAM: what is written there takes memory; it is a tmpfs or ramfs.
	RAM bool
}

// DiskAt describes the file system of a path, which need not exist yet: its nearest folder that
// exists counts.
func DiskAt(path string) (Disk, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return Disk{}, fmt.Errorf("measure disk: %w", err)
	}
	var s unix.Statfs_t
	for {
		err := unix.Statfs(path, &s)
		if err == nil {
			break
		}
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if parent := filepath.Dir(path); errors.Is(err, fs.ErrNotExist) && parent != path {
			path = parent
			continue
		}
		return Disk{}, fmt.Errorf("measure disk: %w", &fs.PathError{Op: "statfs", Path: path, Err: err})
	}
	block := int64(s.Frsize)
	if block == 0 {
		block = int64(s.Bsize)
	}
	return Disk{
		Total: int64(s.Blocks) * block,
		Free:  int64(s.Bavail) * block,
		RAM:   s.Type == unix.TMPFS_MAGIC || s.Type == unix.RAMFS_MAGIC,
	}, nil
}

// FreeSpace is how many bytes can still be written under a path.
func FreeSpace(path string) (int64, error) {
	d, err := DiskAt(path)
	return d.Free, err
}

// SwapPrefix begins the names of the folders that hold what attempts offload to NVMe.
const SwapPrefix = "gpurun-"

// SwapDir names the folder below root for what an attempt offloads to NVMe, by the attempt's
// folder in its run directory; empty where there is no root. Runs of one job have different
// names.
func SwapDir(root, attempt string) string {
	if root == "" {
		return ""
	}
	return filepath.Join(root, SwapPrefix+filepath.Base(filepath.Dir(attempt))+"-"+filepath.Base(attempt))
}

// LackOfNVMe is why nothing can be offloaded to the folder that recovery.nvme_path names, empty
// where it can be. The folder may be missing where it can be made: the one above it exists.
func LackOfNVMe(root string) string {
	dir, err := existing(root)
	var disk Disk
	if err == nil {
		disk, err = DiskAt(dir)
	}
	if err != nil {
		return fmt.Sprintf("recovery.nvme_path %s: %v", root, err)
	}
	if disk.RAM {
		return fmt.Sprintf("recovery.nvme_path %s is in host memory (tmpfs)", root)
	}
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return fmt.Sprintf("recovery.nvme_path %s cannot be written: %v", root, err)
	}
	return ""
}

// existing is a folder, or the one above it where it can be made there.
func existing(root string) (string, error) {
	for _, dir := range []string{root, filepath.Dir(root)} {
		info, err := os.Stat(dir)
		switch {
		case err == nil && info.IsDir():
			return dir, nil
		case err == nil:
			return "", unix.ENOTDIR
		case !errors.Is(err, fs.ErrNotExist):
			return "", errors.Unwrap(err) // without the path
		}
	}
	return "", unix.ENOENT
}

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
