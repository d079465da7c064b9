package strategy

import (
	"fmt"
	"slices"

	"github.com/gpurun/gpurun/strategy/cause"
)

// A FileSystem is the file system of a path in an error, as the machine shows it after the error.
type FileSystem struct {
	Path   string `json:"path"`
	Mount  string `json:"mount"`            // the folder where it begins
	Type   string `json:"type"`             // "nfs4", "ext4", "tmpfs"
	Source string `json:"source,omitempty"` // its device, or its server and folder
	// Total and Free are bytes; 0 if they were not measured.
	Total    int64 `json:"total_bytes,omitempty"`
	Free     int64 `json:"free_bytes,omitempty"`
	ReadOnly bool  `json:"read_only,omitempty"`
	// Saved: the error is in saved output, which may come from another machine.
	Saved bool `json:"saved,omitempty"`
}

// remoteTypes are the types of file systems that a server, or several, provide.
var remoteTypes = []string{
	"nfs", "nfs4", "lustre", "cifs", "smb3", "ceph", "beegfs", "gpfs", "glusterfs", "9p", "virtiofs", "wekafs", "panfs",
	"orangefs", "afs", "pvfs2",
	"fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone", "fuse.mount-s3", "fuse.juicefs", "fuse.glusterfs",
	"fuse.ceph-fuse", "fuse.cvmfs2",
}

// Remote reports whether a server provides the file system.
func (s *FileSystem) Remote() bool {
	return slices.Contains(remoteTypes, s.Type)
}

// inMemory reports whether what is written there takes the host's memory.
func (s *FileSystem) inMemory() bool { return s.Type == "tmpfs" || s.Type == "ramfs" }

func (s *FileSystem) String() string {
	text := s.Mount + " (" + s.Type
	if s.Source != "" && !s.inMemory() && s.Source != s.Type {
		text += " of " + s.Source
	}
	if s.Total > 0 {
		text += fmt.Sprintf(", %s free of %s", GiB(s.Free), GiB(s.Total))
	}
	if s.Saved {
		text += ", if this is the machine of the job"
	}
	return text + ")"
}

// StoragePath is the path in an error about the storage; empty: none.
func StoragePath(f *cause.Finding) string {
	if f == nil || f.Code != cause.DiskFull && f.Code != cause.SharedMemory && f.Code != cause.Storage {
		return ""
	}
	return cause.PathIn(f.Text)
}

// fileSystem is the file system of the path in the error; nil: not known.
func (c *fold) fileSystem(f *cause.Finding) *FileSystem {
	path := StoragePath(f)
	for _, s := range c.fileSystems {
		if path != "" && s.Path == path {
			return s
		}
	}
	return nil
}

// code is the finding's cause. A full /dev/shm is shared memory under whatever path it was reached. An
// error that says that a file system is full, though the machine shows space there, comes from a quota,
// or from space that was freed since: the next write may succeed.
func (c *fold) code(f *cause.Finding) cause.Code {
	s := c.fileSystem(f)
	switch {
	case s == nil || f.Code != cause.DiskFull:
	case s.Mount == "/dev/shm":
		return cause.SharedMemory
	case s.spacious() && !s.ReadOnly && !s.inMemory() && !s.Saved:
		return cause.Storage
	}
	return f.Code
}

// plenty is the share of a file system, as a divisor, and plentyBytes the bytes, that are too much
// for it to be full.
const plenty, plentyBytes = 20, 1 << 30

func (s *FileSystem) spacious() bool { return s.Free > plentyBytes && s.Free > s.Total/plenty }

// advise says what to do about the file system.
func (s *FileSystem) advise(code cause.Code) string {
	switch full := code == cause.DiskFull; {
	case !full && s.Remote():
		return fmt.Sprintf("check the file server of %s, and this node's connection to it", s)
	case !full:
		return fmt.Sprintf("check the disk of %s and the kernel log (dmesg) before the job is started again", s)
	case s.ReadOnly:
		return fmt.Sprintf("%s is read-only: point the job elsewhere, or look in the kernel log why it is", s)
	case s.inMemory():
		return fmt.Sprintf("%s is in host memory: make it larger, or point the job elsewhere (TMPDIR for temporary files)", s)
	case s.spacious():
		return fmt.Sprintf("%s has space: look for a quota or a limit of files (df -i), or for what freed space since", s)
	}
	return fmt.Sprintf("free space or quota on %s, or point the job elsewhere (TMPDIR for temporary files)", s)
}
