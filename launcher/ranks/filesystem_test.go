package ranks

import (
	"testing"
	"testing/fstest"

	"github.com/gpurun/gpurun/strategy"
)

// TestFileSystemOf: the deepest mount above a path counts, and of several at one point the last.
func TestFileSystemOf(t *testing.T) {
	const mounts = `22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:21 / /dev/shm rw,nosuid - tmpfs tmpfs rw,size=65536k
24 22 0:40 / /data rw - autofs systemd-1 rw
25 24 0:41 / /data rw,relatime - nfs4 filer:/vol rw,vers=4.2
26 22 8:2 / /my\040disk ro,relatime - xfs /dev/sdb1 ro
`
	m := at(fstest.MapFS{"proc/self/mountinfo": {Data: []byte(mounts)}})
	for path, want := range map[string]strategy.FileSystem{
		"/data/out/c.pt":    {Mount: "/data", Type: "nfs4", Source: "filer:/vol"},
		"/database/c.pt":    {Mount: "/", Type: "ext4", Source: "/dev/sda1"},
		"/dev/shm/torch_7":  {Mount: "/dev/shm", Type: "tmpfs", Source: "tmpfs"},
		"/my disk/c.pt":     {Mount: "/my disk", Type: "xfs", Source: "/dev/sdb1", ReadOnly: true},
		"/data/../etc/c.pt": {Mount: "/", Type: "ext4", Source: "/dev/sda1"},
	} {
		want.Path = path
		if got := m.FileSystemOf(path, false); got == nil || *got != want {
			t.Errorf("%s: %+v, want %+v", path, got, want)
		}
	}
	if got := at(fstest.MapFS{}).FileSystemOf("/data", true); got != nil {
		t.Errorf("%+v of a machine without mounts", got)
	}
	if got := ThisMachine().FileSystemOf("/dev/none", true); got == nil || got.Mount == "" {
		t.Errorf("%+v of a path of this machine", got)
	}
}
