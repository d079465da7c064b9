package strategy

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy/cause"
)

// TestFileSystemOfAnError: the file system of the path in an error decides the advice, and a path
// that leads to /dev/shm the cause.
func TestFileSystemOfAnError(t *testing.T) {
	full := raise("OSError: [Errno 28] No space left on device: '/data/c.pt'", "t.py 3 <module>")
	failed := raise("OSError: [Errno 5] Input/output error: '/data/c.pt'", "t.py 3 <module>")
	for name, c := range map[string]struct {
		log    string
		system FileSystem
		cause  cause.Code
		advice string
	}{
		"full":                       {full, FileSystem{Path: "/data/c.pt", Mount: "/data", Type: "nfs4", Source: "filer:/vol", Total: 2 << 40}, cause.DiskFull, "free space or quota on /data (nfs4 of filer:/vol, 0 bytes free of 2048 GiB)"},
		"a quota":                    {full, FileSystem{Path: "/data/c.pt", Mount: "/data", Type: "xfs", Source: "/dev/sda1", Total: 2 << 40, Free: 1 << 40}, cause.Storage, "look for a quota"},
		"a quota of another machine": {full, FileSystem{Path: "/data/c.pt", Mount: "/data", Type: "xfs", Source: "/dev/sda1", Total: 2 << 40, Free: 1 << 40, Saved: true}, cause.DiskFull, "look for a quota"},
		"memory":                     {full, FileSystem{Path: "/data/c.pt", Mount: "/data", Type: "tmpfs", Source: "tmpfs", Total: 1 << 30}, cause.DiskFull, "is in host memory"},
		"shared memory":              {full, FileSystem{Path: "/data/c.pt", Mount: "/dev/shm", Type: "tmpfs"}, cause.SharedMemory, ""},
		"read-only":                  {full, FileSystem{Path: "/data/c.pt", Mount: "/data", Type: "ext4", ReadOnly: true}, cause.DiskFull, "is read-only"},
		"of another path":            {full, FileSystem{Path: "/other/c.pt", Mount: "/other", Type: "tmpfs"}, cause.DiskFull, "the file system of /data/c.pt"},
		"a server fails":             {failed, FileSystem{Path: "/data/c.pt", Mount: "/data", Type: "lustre", Source: "mds@tcp:/l"}, cause.Storage, "check the file server of /data (lustre of mds@tcp:/l)"},
		"a disk fails":               {failed, FileSystem{Path: "/data/c.pt", Mount: "/data", Type: "ext4", Source: "/dev/sda1"}, cause.Storage, "check the disk of /data (ext4 of /dev/sda1)"},
		"in saved output":            {failed, FileSystem{Path: "/data/c.pt", Mount: "/data", Type: "ext4", Source: "/dev/sda1", Saved: true}, cause.Storage, "if this is the machine of the job"},
		"of a mount point":           {failed, FileSystem{Path: "/data/c.pt", Mount: "/data", Type: "fuse.s3fs", Source: "s3fs"}, cause.Storage, "check the file server"},
	} {
		ev := EvidenceFromLog(cause.Scan("log", c.log), nil)
		ev.Add(Fact{Rank: -1, Source: "gpurun", Content: &c.system})
		if d := Diagnose(ev); d.Cause != c.cause || !strings.Contains(d.Advice, c.advice) {
			t.Errorf("%s: %s, %q; want %s, %q", name, d.Cause, d.Advice, c.cause, c.advice)
		}
	}
}
