package host

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
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

// Free is how many bytes can still be written under a path.
func Free(path string) (int64, error) {
	d, err := DiskAt(path)
	return d.Free, err
}
