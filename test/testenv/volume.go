package testenv

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"testing"
)

// VolumeGroup is the group of Volume. No such group needs to exist.
const VolumeGroup = 4321

// Volume makes the test a pod of Kubernetes with an fsGroup, and returns the folder of a volume. Only root can be in
// that group: for other users the test is skipped.
func Volume(t *testing.T) string {
	t.Helper()
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
	if err := syscall.Setegid(VolumeGroup); err != nil || os.Geteuid() != 0 {
		t.Skipf("only root can join a group and give files away: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Setegid(0); err != nil {
			t.Error(err)
		}
	})
	dir := t.TempDir()
	if err := errors.Join(os.Chown(dir, 0, VolumeGroup), os.Chmod(dir, 0o770|fs.ModeSetgid)); err != nil {
		t.Fatal(err)
	}
	return dir
}
