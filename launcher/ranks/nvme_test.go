package ranks

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestSwapDir(t *testing.T) {
	if got := SwapDir("", "/runs/r/attempt-1"); got != "" {
		t.Errorf("without nvme_path: %q", got)
	}
	if got, want := SwapDir("/nvme", "/runs/r/attempt-1"), "/nvme/gpurun-r-attempt-1"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestLackOfNVMe(t *testing.T) {
	root := filepath.Join(t.TempDir(), "made")
	if reason := LackOfNVMe(root); reason != "" {
		t.Errorf("a folder that can be made: %s", reason)
	}
	if _, err := os.Stat(root); !os.IsNotExist(err) {
		t.Errorf("the question made the folder: %v", err)
	}
	if reason := LackOfNVMe("/dev/shm"); !strings.Contains(reason, "is in host memory (tmpfs)") {
		t.Errorf("/dev/shm: %q", reason)
	}
	if reason := LackOfNVMe(filepath.Join(t.TempDir(), "missing", "too")); !strings.Contains(reason, "no such file") {
		t.Errorf("a missing folder: %q", reason)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if reason := LackOfNVMe(file); !strings.Contains(reason, "not a directory") {
		t.Errorf("a file: %q", reason)
	}
}

// The free space is counted in fragments, which some file systems make smaller than
// the block that they like to be written in.
func TestFreeBytes(t *testing.T) {
	dir := t.TempDir()
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		t.Fatal(err)
	}
	free, err := FreeSpace(filepath.Join(dir, "made"))
	if err != nil {
		t.Fatal(err)
	}
	const slack = 1 << 30 // others write meanwhile
	if want := int64(s.Bavail) * int64(s.Frsize); free < want-slack || free > want+slack {
		t.Errorf("%d bytes are free, want some %d", free, want)
	}
}
